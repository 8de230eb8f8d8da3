output "bootstrap_servers" {
  description = "Brokers."
  value       = var.bootstrap_servers
}

output "account_secrets" {
  description = "Secret by account."
  value       = var.account_secrets
}

output "account_secrets_key" {
  description = "Key of these secrets, or null."
  value       = var.account_secrets_key
}

output "mechanism" {
  description = "sasl.mechanism."
  value       = var.mechanism
}

output "cluster" {
  description = "Null: its own alarms are its owner's."
  value       = null
}
