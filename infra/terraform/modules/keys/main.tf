# Who administers a key cannot use it, and who uses it cannot change it. In a key's own
# policy the resource "*" is that key: AWS has no narrower word there.

data "aws_caller_identity" "here" {}
data "aws_region" "here" {}
data "aws_partition" "here" {}

locals {
  administering = [
    "kms:CancelKeyDeletion", "kms:CreateAlias", "kms:DeleteAlias", "kms:DescribeKey",
    "kms:DisableKey", "kms:DisableKeyRotation", "kms:EnableKey", "kms:EnableKeyRotation",
    "kms:GetKeyPolicy", "kms:GetKeyRotationStatus", "kms:ListKeyPolicies",
    "kms:ListResourceTags", "kms:PutKeyPolicy", "kms:ScheduleKeyDeletion",
    "kms:TagResource", "kms:UntagResource", "kms:UpdateAlias", "kms:UpdateKeyDescription",
  ]

  administrators = {
    Sid       = "Administrators"
    Effect    = "Allow"
    Principal = { AWS = var.administrators }
    Action    = local.administering
    Resource  = "*"
  }

  auditors = {
    Sid       = "PublicKey"
    Effect    = "Allow"
    Principal = { AWS = [var.roles["auditor"].arn] }
    Action    = ["kms:GetPublicKey"]
    Resource  = "*"
  }

  signing = merge(
    { root = "root" },
    { for number in range(var.generations["receipt"]) : "receipt-${number + 1}" => "receipt" },
    { for number in range(var.generations["log"]) : "log-${number + 1}" => "log" },
  )

  ceremony = contains(keys(var.roles), "ceremony") ? [var.roles["ceremony"].arn] : []
  signers = {
    root    = local.ceremony
    receipt = concat([var.roles["signer"].arn], local.ceremony)
    log     = concat([var.roles["signer"].arn], local.ceremony)
  }
}

resource "aws_kms_key" "signing" {
  for_each                 = local.signing
  description              = "CacheMind ${var.name}: signs as ${each.key}"
  key_usage                = "SIGN_VERIFY"
  customer_master_key_spec = "ECC_NIST_P256"
  deletion_window_in_days  = var.deletion_window_days
  # KMS cannot rotate asymmetric keys: one is exchanged by another generation.
  enable_key_rotation = false

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [local.administrators, local.auditors],
      length(local.signers[each.value]) == 0 ? [] : [{
        Sid       = "Sign"
        Effect    = "Allow"
        Principal = { AWS = local.signers[each.value] }
        Action    = ["kms:GetPublicKey", "kms:Sign"]
        Resource  = "*"
      }],
    )
  })
}

resource "aws_kms_alias" "signing" {
  for_each      = aws_kms_key.signing
  name          = "alias/${var.name}-${each.key}"
  target_key_id = each.value.key_id
}

# Wraps the data keys of namespaces: the gateway's task alone uses it.
resource "aws_kms_key" "payload" {
  description             = "CacheMind ${var.name}: wraps data keys"
  deletion_window_in_days = var.deletion_window_days
  enable_key_rotation     = true

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      local.administrators,
      {
        Sid       = "Wrap"
        Effect    = "Allow"
        Principal = { AWS = [var.roles["gateway"].arn] }
        Action    = ["kms:Decrypt", "kms:Encrypt"]
        Resource  = "*"
        # Never without saying for which key: that is what CloudTrail shows.
        Condition = { Null = { "kms:EncryptionContext:cachemind-context" = "false" } }
      },
    ]
  })
}

resource "aws_kms_alias" "payload" {
  name          = "alias/${var.name}-payload"
  target_key_id = aws_kms_key.payload.key_id
}

# Disks, logs, passwords, snapshots.
resource "aws_kms_key" "storage" {
  description             = "CacheMind ${var.name}: storage"
  deletion_window_in_days = var.deletion_window_days
  enable_key_rotation     = true

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      local.administrators,
      {
        Sid       = "GrantsToServices"
        Effect    = "Allow"
        Principal = { AWS = var.administrators }
        Action    = ["kms:CreateGrant", "kms:Decrypt", "kms:GenerateDataKey"]
        Resource  = "*"
        Condition = {
          StringEquals = { "kms:ViaService" = [
            for service in ["kafka", "secretsmanager"] : "${service}.${data.aws_region.here.name}.amazonaws.com"
          ] }
        }
      },
      {
        Sid       = "Logs"
        Effect    = "Allow"
        Principal = { Service = "logs.${data.aws_region.here.name}.amazonaws.com" }
        Action    = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom", "kms:ReEncryptTo"]
        Resource  = "*"
        Condition = {
          ArnLike = { "kms:EncryptionContext:aws:logs:arn" = "arn:${data.aws_partition.here.partition}:logs:${data.aws_region.here.name}:${data.aws_caller_identity.here.account_id}:log-group:/${var.name}/*" }
        }
      },
      {
        Sid       = "Passwords"
        Effect    = "Allow"
        Principal = { AWS = sort([for role in values(var.execution_roles) : role.arn]) }
        Action    = ["kms:Decrypt"]
        Resource  = "*"
        Condition = { StringEquals = { "kms:ViaService" = "secretsmanager.${data.aws_region.here.name}.amazonaws.com" } }
      },
      {
        Sid       = "Snapshots"
        Effect    = "Allow"
        Principal = { AWS = [var.roles["gateway"].arn] }
        Action    = ["kms:Decrypt", "kms:GenerateDataKey"]
        Resource  = "*"
        Condition = { StringEquals = { "kms:ViaService" = "s3.${data.aws_region.here.name}.amazonaws.com" } }
      },
    ]
  })
}

resource "aws_kms_alias" "storage" {
  name          = "alias/${var.name}-storage"
  target_key_id = aws_kms_key.storage.key_id
}
