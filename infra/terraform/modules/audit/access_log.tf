# Who read what: S3 writes it, nobody of ours does.

resource "aws_s3_bucket" "access" {
  bucket        = var.access_log_bucket
  force_destroy = false
}

resource "aws_s3_bucket_versioning" "access" {
  bucket = aws_s3_bucket.access.id
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_public_access_block" "access" {
  bucket                  = aws_s3_bucket.access.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "access" {
  bucket = aws_s3_bucket.access.id
  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

# S3's delivery of logs and the load balancer's write with S3's own keys alone.
resource "aws_s3_bucket_server_side_encryption_configuration" "access" {
  bucket = aws_s3_bucket.access.id
  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "access" {
  bucket = aws_s3_bucket.access.id
  rule {
    id     = "old"
    status = "Enabled"
    filter {}
    expiration {
      days = var.access_log_days
    }
    noncurrent_version_expiration {
      noncurrent_days = 30
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }
}

resource "aws_s3_bucket_policy" "access" {
  bucket = aws_s3_bucket.access.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "TlsOnly"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:*"
        Resource  = [aws_s3_bucket.access.arn, "${aws_s3_bucket.access.arn}/*"]
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
      {
        Sid       = "Buckets"
        Effect    = "Allow"
        Principal = { Service = "logging.s3.amazonaws.com" }
        Action    = "s3:PutObject"
        Resource  = [for bucket in ["audit", "data-keys", "snapshots"] : "${aws_s3_bucket.access.arn}/${bucket}/*"]
        Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.here.account_id } }
      },
      {
        # The account is in the path, as AWS documents it for load balancers; whether they
        # say their account in a condition too is documented nowhere.
        Sid       = "Balancer"
        Effect    = "Allow"
        Principal = { Service = "logdelivery.elasticloadbalancing.amazonaws.com" }
        Action    = "s3:PutObject"
        Resource  = "${aws_s3_bucket.access.arn}/gateway/AWSLogs/${data.aws_caller_identity.here.account_id}/*"
      },
    ]
  })
}
