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

  # What each grant has: its names say all that the program knows of it.
  grants = var.grants == null ? [] : var.grants
  granted = {
    for grant in distinct([for one in local.grants : { namespace = one.namespace, role = one.role }]) :
    "${grant.namespace}.${grant.role}" => {
      for what, template in merge({ group = local.table.grants.group }, { for kind, topic in local.table.grants.topics : kind => topic.name }) :
      what => replace(replace(replace(template, "{prefix}", var.prefix), "{namespace}", grant.namespace), "{role}", grant.role)
    }
  }

  grant_topics = {
    for pair in setproduct(keys(local.granted), keys(local.table.grants.topics)) : "${pair[1]}.${pair[0]}" => merge(
      local.topics[pair[1]],
      { name = local.granted[pair[0]][pair[1]], partitions = local.table.grants.topics[pair[1]].partitions },
    )
  }

  grant_acls = [
    for pair in setproduct(local.grants, local.table.grants.rules) : {
      principal  = "User:${pair[0].user}"
      resource   = pair[1].resource
      name       = replace(replace(replace(pair[1].name, "{prefix}", var.prefix), "{namespace}", pair[0].namespace), "{role}", pair[0].role)
      pattern    = pair[1].pattern
      operations = pair[1].operations
    }
  ]

  day_ms = 24 * 60 * 60 * 1000

  role_acls = flatten([
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

  acls = concat(local.role_acls, local.grant_acls)

  principals = { for role in keys(local.rules) : role => "User:${lookup(var.accounts, role, role)}" }
}
