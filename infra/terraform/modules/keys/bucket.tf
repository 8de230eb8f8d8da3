# Wrapped data keys. Without versions, on purpose: a key that was destroyed so that its
# payloads can never be read again must not be among them.

resource "aws_s3_bucket" "data_keys" {
  bucket        = var.data_keys_bucket
  force_destroy = false

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_public_access_block" "data_keys" {
  bucket                  = aws_s3_bucket.data_keys.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "data_keys" {
  bucket = aws_s3_bucket.data_keys.id
  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "data_keys" {
  bucket = aws_s3_bucket.data_keys.id
  rule {
    bucket_key_enabled = true
    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = aws_kms_key.storage.arn
    }
  }
}

resource "aws_s3_bucket_versioning" "data_keys" {
  bucket = aws_s3_bucket.data_keys.id
  versioning_configuration {
    status = "Disabled"
  }
}

# Nothing expires here: a data key is needed for as long as its payloads are.
resource "aws_s3_bucket_lifecycle_configuration" "data_keys" {
  bucket = aws_s3_bucket.data_keys.id
  rule {
    id     = "unfinished"
    status = "Enabled"
    filter {}
    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }
}

resource "aws_s3_bucket_logging" "data_keys" {
  bucket        = aws_s3_bucket.data_keys.id
  target_bucket = var.access_log_bucket
  target_prefix = "data-keys/"
}

resource "aws_s3_bucket_policy" "data_keys" {
  bucket = aws_s3_bucket.data_keys.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "TlsOnly"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:*"
        Resource  = [aws_s3_bucket.data_keys.arn, "${aws_s3_bucket.data_keys.arn}/*"]
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
      {
        Sid       = "NeverDeleted"
        Effect    = "Deny"
        Principal = "*"
        Action    = ["s3:DeleteBucket", "s3:DeleteObject", "s3:PutBucketVersioning"]
        Resource  = [aws_s3_bucket.data_keys.arn, "${aws_s3_bucket.data_keys.arn}/*"]
        Condition = { ArnEquals = { "aws:PrincipalArn" = sort([for role in values(var.roles) : role.arn]) } }
      },
    ]
  })
}
