output "bootstrap_servers" {
  description = "Brokers, by SASL/SCRAM over TLS."
  value       = aws_msk_cluster.this.bootstrap_brokers_sasl_scram
}

output "account_secrets" {
  description = "Secret by account: JSON with username and password."
  value       = { for account, secret in aws_secretsmanager_secret.account : account => secret.arn }
  depends_on  = [aws_msk_scram_secret_association.accounts]
}

output "mechanism" {
  description = "sasl.mechanism."
  value       = "SCRAM-SHA-512"
}

output "cluster" {
  description = "Name and number of brokers, for alarms."
  value       = { name = aws_msk_cluster.this.cluster_name, brokers = var.brokers }
}

output "protections" {
  description = "What a look at the plan should find."
  value = {
    public_access     = aws_msk_cluster.this.broker_node_group_info[0].connectivity_info[0].public_access[0].type
    unauthenticated   = aws_msk_cluster.this.client_authentication[0].unauthenticated
    client_broker     = aws_msk_cluster.this.encryption_info[0].encryption_in_transit[0].client_broker
    in_cluster        = aws_msk_cluster.this.encryption_info[0].encryption_in_transit[0].in_cluster
    secrets_keys      = [for secret in aws_secretsmanager_secret.account : secret.kms_key_id]
    disk_key          = aws_msk_cluster.this.encryption_info[0].encryption_at_rest_kms_key_arn
    logs              = aws_msk_cluster.this.logging_info[0].broker_logs[0].cloudwatch_logs[0].enabled
    server_properties = aws_msk_configuration.this.server_properties
  }
}
