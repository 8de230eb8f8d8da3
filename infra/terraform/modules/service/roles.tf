# Each action in actions.json is one that the program calls; a test holds it against the
# program's text.
resource "aws_iam_role_policy" "use" {
  for_each = { for use, role in var.roles : use => role if contains(keys(local.actions), use) }
  name     = "use"
  role     = each.value.name
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      for statement in local.actions[each.key] : {
        Sid      = statement.sid
        Effect   = "Allow"
        Action   = statement.actions
        Resource = flatten([for resource in statement.resources : local.resources[resource]])
      }
    ]
  })
}

locals {
  repositories = [
    for image in [var.image, var.metrics_image] :
    format(
      "arn:%s:ecr:%s:%s:repository/%s",
      data.aws_partition.here.partition,
      split(".", image)[3],
      split(".", image)[0],
      split("@", join("/", slice(split("/", image), 1, length(split("/", image)))))[0],
    )
  ]
}

resource "aws_iam_role_policy" "start" {
  for_each = var.execution_roles
  name     = "start"
  role     = each.value.name
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid    = "Token"
        Effect = "Allow"
        Action = ["ecr:GetAuthorizationToken"]
        # AWS has no resource for it.
        Resource = ["*"]
      },
      {
        Sid      = "Image"
        Effect   = "Allow"
        Action   = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
        Resource = local.repositories
      },
      {
        Sid      = "Log"
        Effect   = "Allow"
        Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
        Resource = ["${var.log_groups[each.key].arn}:*"]
      },
      {
        Sid      = "Secrets"
        Effect   = "Allow"
        Action   = ["secretsmanager:GetSecretValue"]
        Resource = concat([for account in sort(distinct(values(local.accounts[each.key]))) : var.kafka.account_secrets[account]], values(local.secrets_of[each.key]), each.key == "gateway" ? aws_secretsmanager_secret.metrics[*].arn : [])
      },
      {
        Sid      = "SecretsKey"
        Effect   = "Allow"
        Action   = ["kms:Decrypt"]
        Resource = distinct(concat([var.keys.storage], var.kafka.account_secrets_key[*]))
      },
    ]
  })
}
