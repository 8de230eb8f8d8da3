output "base_url" {
  description = "What applications set as base_url."
  value       = module.service.base_url
}

output "balancer" {
  description = "Make `hostname` an alias of this."
  value       = module.service.balancer
}

output "bootstrap_servers" {
  description = "Kafka, for applications that speak it."
  value       = module.kafka.bootstrap_servers
}

output "topics" {
  description = "Topic names."
  value       = module.topics.names
}

output "grants" {
  description = "For applications that ask by commands: topics and consumer groups, by namespace and role."
  value       = module.topics.grants
}

output "keys" {
  description = "Signing keys, for auditors to fetch the public ones."
  value       = module.keys.signing
}

output "buckets" {
  description = "Buckets of sealed receipts and of snapshots."
  value       = { audit = module.audit.bucket.name, snapshots = module.snapshots.bucket.name }
}

output "topics_task" {
  description = "How the task that makes topics and ACLs is started: see README, rolling out."
  value       = module.service.topics_task
}

output "let_in" {
  description = "What owners of what was there let in: brokers at the cluster's port, endpoints (existing_endpoints) at 443, from these security groups."
  value = {
    brokers   = [for role in ["gateway", "signer", "sink", "topics"] : module.network.security_groups[role]]
    endpoints = module.network.endpoint_clients
  }
}

output "auditor_role" {
  description = "Role for auditors."
  value       = module.identities.roles["auditor"].arn
}

output "protections" {
  description = "What is protected, and how: read it in the plan."
  value = {
    audit     = { lock = module.audit.protections.lock, versioning = module.audit.protections.versioning }
    keys      = { for use, key in module.keys.protections.signing : use => { spec = key.spec, deletion_days = key.deletion } }
    reachable = module.network.reachable
    balancer  = module.service.protections.listener
    topics    = { for name, topic in module.topics.topics : name => { copies = topic.replication_factor, settings = topic.settings } }
  }
}
