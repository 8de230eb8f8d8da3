# topics.json is written by generate.py from the program's own table, and a test fails
# where the two differ. acls.json is by hand; a test lets each role do its work with it
# on a real broker.

locals {
  table = jsondecode(file("${path.module}/topics.json"))
  rules = jsondecode(file("${path.module}/acls.json"))

  topics = {
    for name, topic in local.table.topics : name => {
      name               = "${var.prefix}.${name}"
      partitions         = topic.as_many_as_wal ? var.partitions : topic.partitions
      replication_factor = var.replication_factor
      settings = merge(
        topic.settings,
        contains(keys(var.retention_days), name) ? {
          "retention.ms" = tostring(var.retention_days[name] == -1 ? -1 : var.retention_days[name] * local.day_ms)
        } : {},
      )
    }
  }

  day_ms = 24 * 60 * 60 * 1000

  acls = flatten([
    for role, rules in local.rules : [
      for rule in rules : {
        principal  = local.principals[role]
        resource   = rule.resource
        name       = replace(rule.name, "{prefix}", var.prefix)
        pattern    = rule.pattern
        operations = rule.operations
      }
    ] if role != "ceremony" || var.key_ceremony
  ])

  principals = { for role in keys(local.rules) : role => "User:${lookup(var.accounts, role, role)}" }
}
