output "signing" {
  description = "ARN of each signing key: root, receipt-1.., log-1.."
  value       = { for use, key in aws_kms_key.signing : use => key.arn }
}

output "uris" {
  description = "Keys as the program's settings name them."
  value = {
    root    = "aws-kms:${aws_kms_key.signing["root"].arn}"
    receipt = join(" ", [for use, kind in local.signing : "aws-kms:${aws_kms_key.signing[use].arn}" if kind == "receipt"])
    log     = join(" ", [for use, kind in local.signing : "aws-kms:${aws_kms_key.signing[use].arn}" if kind == "log"])
    payload = "aws-kms:${aws_kms_key.payload.arn}"
  }
}

output "payload" {
  description = "ARN of the key that wraps data keys."
  value       = aws_kms_key.payload.arn
}

output "storage" {
  description = "ARN of the key for disks, logs, passwords and snapshots."
  value       = aws_kms_key.storage.arn
}

output "data_keys_bucket" {
  description = "Bucket of wrapped data keys."
  value       = { name = aws_s3_bucket.data_keys.bucket, arn = aws_s3_bucket.data_keys.arn }
}

output "protections" {
  description = "What a look at the plan should find: policies as decoded JSON."
  value = {
    signing = {
      for use, key in aws_kms_key.signing : use => {
        spec     = key.customer_master_key_spec
        usage    = key.key_usage
        deletion = key.deletion_window_in_days
        policy   = jsondecode(key.policy)
      }
    }
    payload          = jsondecode(aws_kms_key.payload.policy)
    storage          = jsondecode(aws_kms_key.storage.policy)
    rotation         = { payload = aws_kms_key.payload.enable_key_rotation, storage = aws_kms_key.storage.enable_key_rotation }
    data_keys_policy = jsondecode(aws_s3_bucket_policy.data_keys.policy)
    data_keys_logged = aws_s3_bucket_logging.data_keys.target_bucket
    data_keys_public = aws_s3_bucket_public_access_block.data_keys
    data_keys_expire = anytrue([for rule in aws_s3_bucket_lifecycle_configuration.data_keys.rule : length(rule.expiration) > 0 || length(rule.transition) > 0])
    data_keys_kept   = aws_s3_bucket_versioning.data_keys.versioning_configuration[0].status
    data_keys_sse    = one(aws_s3_bucket_server_side_encryption_configuration.data_keys.rule).apply_server_side_encryption_by_default[0]
  }
}
