output "topics" {
  description = "Every topic: name, partitions, copies and settings."
  value       = local.topics
}

output "names" {
  description = "Topic names, for applications that speak Kafka."
  value       = { for key, topic in local.topics : key => topic.name }
}

output "acls" {
  description = "What each account may do."
  value       = local.acls
}

output "prefix" {
  description = "First part of topic names."
  value       = var.prefix
}

output "partitions" {
  description = "WAL partitions."
  value       = var.partitions
}

output "plan" {
  description = "What the task `topics` makes: JSON with topics, ACLs, and whose ACLs are none but these."
  value       = jsonencode({ topics = values(local.topics), acls = local.acls, principals = values(local.principals) })
}
