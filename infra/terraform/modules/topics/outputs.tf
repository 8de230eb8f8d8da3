output "topics" {
  description = "Every topic: name, partitions, copies and settings."
  value       = merge(local.topics, local.grant_topics)
}

output "names" {
  description = "Topic names, for applications that speak Kafka."
  value       = { for key, topic in local.topics : key => topic.name }
}

output "grants" {
  description = "By namespace and role: the topic of a grant's commands, that of its answers, and what its clients' consumer groups begin with."
  value       = local.granted
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
  description = "What the task `topics` makes: JSON with topics, ACLs, and of whom and on what there are none but these."
  value = jsonencode({
    topics     = concat(values(local.topics), values(local.grant_topics))
    acls       = local.acls
    principals = values(local.principals)
    only       = var.grants == null ? [] : [for kind in ["requests", "replies", "client"] : "${var.prefix}.${kind}."]
  })
}
