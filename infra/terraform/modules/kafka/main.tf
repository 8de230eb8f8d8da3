# The program speaks SASL/SCRAM over TLS (aiokafka and librdkafka both do); MSK's IAM
# mechanism is not among what it knows.

locals {
  server_properties = {
    # Brokers are super users with MSK: no ACL keeps them from copying records.
    "allow.everyone.if.no.acl.found" = var.open_until_acls
    "auto.create.topics.enable"      = false
    "default.replication.factor"     = var.replication_factor
    "min.insync.replicas"            = var.replication_factor - 1
    # Of Kafka's own topics too: offsets and transactions are as dear as the log.
    "offsets.topic.replication.factor"         = var.replication_factor
    "transaction.state.log.replication.factor" = var.replication_factor
    "transaction.state.log.min.isr"            = var.replication_factor - 1
    "unclean.leader.election.enable"           = false
  }
}

resource "aws_msk_configuration" "this" {
  name              = var.name
  kafka_versions    = [var.kafka_version]
  server_properties = join("\n", [for key, value in local.server_properties : "${key}=${value}"])
}

resource "aws_cloudwatch_log_group" "brokers" {
  name              = "/${var.name}/kafka"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.storage_key_arn
}

resource "aws_msk_cluster" "this" {
  cluster_name           = var.name
  kafka_version          = var.kafka_version
  number_of_broker_nodes = var.brokers
  # Lag and what else the alarms stand on comes from the program: by broker is enough.
  enhanced_monitoring = "PER_BROKER"

  broker_node_group_info {
    instance_type   = var.instance_type
    client_subnets  = var.subnet_ids
    security_groups = [var.security_group_id]

    connectivity_info {
      public_access {
        type = "DISABLED"
      }
    }

    storage_info {
      ebs_storage_info {
        volume_size = var.disk_gib
      }
    }
  }

  client_authentication {
    unauthenticated = false

    sasl {
      iam   = false
      scram = true
    }
  }

  configuration_info {
    arn      = aws_msk_configuration.this.arn
    revision = aws_msk_configuration.this.latest_revision
  }

  encryption_info {
    encryption_at_rest_kms_key_arn = var.storage_key_arn

    encryption_in_transit {
      client_broker = "TLS"
      in_cluster    = true
    }
  }

  logging_info {
    broker_logs {
      cloudwatch_logs {
        enabled   = true
        log_group = aws_cloudwatch_log_group.brokers.name
      }
    }
  }

  lifecycle {
    prevent_destroy = true
  }
}

# MSK takes only names that begin so, under a key of one's own.
resource "aws_secretsmanager_secret" "account" {
  for_each    = var.accounts
  name        = "AmazonMSK_${var.name}_${each.key}"
  description = "CacheMind: Kafka account of ${each.key}"
  kms_key_id  = var.storage_key_arn
  # Accounts come and go, and a name is free again only after the window; a password is
  # not brought back but set anew.
  recovery_window_in_days = 0
}

resource "aws_secretsmanager_secret_version" "account" {
  for_each  = var.accounts
  secret_id = aws_secretsmanager_secret.account[each.key].id
  secret_string_wo = jsonencode({
    username = each.key
    password = var.passwords[each.key]
  })
  secret_string_wo_version = var.passwords_version
}

resource "aws_msk_scram_secret_association" "accounts" {
  cluster_arn     = aws_msk_cluster.this.arn
  secret_arn_list = [for account in sort(tolist(var.accounts)) : aws_secretsmanager_secret.account[account].arn]
  depends_on      = [aws_secretsmanager_secret_version.account]
}
