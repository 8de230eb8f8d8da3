# The values go to AWS and are in no plan and no state.

resource "aws_secretsmanager_secret" "prompt" {
  name                    = "${var.name}/prompt-secret"
  description             = "CacheMind: keys prompt hashes, equal on all hosts"
  kms_key_id              = var.keys.storage
  recovery_window_in_days = 30
}

resource "aws_secretsmanager_secret_version" "prompt" {
  secret_id                = aws_secretsmanager_secret.prompt.id
  secret_string_wo         = var.secrets["prompt_secret"]
  secret_string_wo_version = var.secrets_version
}

# What the reader of metrics presents where callers are asked for a key.
resource "aws_secretsmanager_secret" "metrics" {
  count                   = local.auth ? 1 : 0
  name                    = "${var.name}/metrics-key"
  description             = "CacheMind: key of the reader of metrics"
  kms_key_id              = var.keys.storage
  recovery_window_in_days = 30
}

resource "aws_secretsmanager_secret_version" "metrics" {
  count                    = local.auth ? 1 : 0
  secret_id                = aws_secretsmanager_secret.metrics[0].id
  secret_string_wo         = var.secrets["metrics_key"]
  secret_string_wo_version = var.secrets_version
}

# Public keys; kept here because who could change them could change what is verified.
resource "aws_secretsmanager_secret" "pinned" {
  name                    = "${var.name}/keys.json"
  description             = "CacheMind: the log's pinned keys"
  kms_key_id              = var.keys.storage
  recovery_window_in_days = 30
}

resource "aws_secretsmanager_secret_version" "pinned" {
  secret_id                = aws_secretsmanager_secret.pinned.id
  secret_string_wo         = var.secrets["keys_json"]
  secret_string_wo_version = var.secrets_version
}
