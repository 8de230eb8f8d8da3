output "bucket" {
  description = "Bucket of shipped snapshots."
  value       = { name = aws_s3_bucket.snapshots.bucket, arn = aws_s3_bucket.snapshots.arn }
}

output "url" {
  description = "Where the program ships to: its setting snapshot_url."
  value       = "s3://${aws_s3_bucket.snapshots.bucket}"
}

output "protections" {
  description = "What a look at the plan should find: policies as decoded JSON."
  value = {
    public     = aws_s3_bucket_public_access_block.snapshots
    encryption = one(aws_s3_bucket_server_side_encryption_configuration.snapshots.rule).apply_server_side_encryption_by_default[0]
    logged_to  = aws_s3_bucket_logging.snapshots.target_bucket
    policy     = jsondecode(aws_s3_bucket_policy.snapshots.policy)
  }
}
