output "bucket" {
  description = "Bucket of sealed receipts and cuts."
  value       = { name = aws_s3_bucket.audit.bucket, arn = aws_s3_bucket.audit.arn }
}

output "access_log_bucket" {
  description = "Bucket of access logs; a value only once it can be written to."
  value       = aws_s3_bucket.access.id
  depends_on  = [aws_s3_bucket_policy.access]
}

output "lock_days" {
  description = "For how long nothing is deleted."
  value       = var.lock_days
}

output "protections" {
  description = "What a look at the plan should find: policies as decoded JSON."
  value = {
    lock          = aws_s3_bucket_object_lock_configuration.audit.rule[0].default_retention[0]
    locked        = aws_s3_bucket.audit.object_lock_enabled
    versioning    = aws_s3_bucket_versioning.audit.versioning_configuration[0].status
    public        = { audit = aws_s3_bucket_public_access_block.audit, access = aws_s3_bucket_public_access_block.access }
    encryption    = one(aws_s3_bucket_server_side_encryption_configuration.audit.rule).apply_server_side_encryption_by_default[0].sse_algorithm
    access_sse    = one(aws_s3_bucket_server_side_encryption_configuration.access.rule).apply_server_side_encryption_by_default[0].sse_algorithm
    policy        = jsondecode(aws_s3_bucket_policy.audit.policy)
    access_policy = jsondecode(aws_s3_bucket_policy.access.policy)
    expires       = anytrue([for rule in aws_s3_bucket_lifecycle_configuration.audit.rule : length(rule.expiration) > 0 || length(rule.noncurrent_version_expiration) > 0])
    cold          = flatten([for rule in aws_s3_bucket_lifecycle_configuration.audit.rule : [for move in rule.transition : { class = move.storage_class, days = move.days }]])
    logged_to     = aws_s3_bucket_logging.audit.target_bucket
  }
}
