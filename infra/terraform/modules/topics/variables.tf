variable "prefix" {
  type        = string
  default     = "cachemind"
  description = "First part of topic names."
  validation {
    condition     = can(regex("^[a-zA-Z0-9._-]{1,200}$", var.prefix))
    error_message = "prefix is 1 to 200 of a-z A-Z 0-9 . _ -"
  }
  validation {
    condition     = !can(regex("\\.(requests|replies)(\\.|$)", var.prefix))
    error_message = "prefix has no part that is requests or replies: topics below it would be grants of another installation."
  }
}

variable "partitions" {
  type        = number
  default     = 4
  description = "WAL partitions. Cannot be changed later: a namespace would move to another one."
  validation {
    condition     = var.partitions >= 1 && var.partitions <= 1024 && floor(var.partitions) == var.partitions
    error_message = "partitions is a whole number from 1 to 1024."
  }
}

variable "replication_factor" {
  type        = number
  default     = 3
  description = "Copies of each record."
  validation {
    condition     = var.replication_factor >= 3
    error_message = "replication_factor is at least 3: with fewer, an acknowledged record can be lost with a broker."
  }
}

variable "retention_days" {
  type        = map(number)
  default     = {}
  description = "By topic, without prefix, for how long records are kept; -1: for ever. What is not named is as the program makes it."
  validation {
    condition     = alltrue([for days in values(var.retention_days) : days == -1 || days >= 1])
    error_message = "retention_days is at least one day, or -1 for ever."
  }
  validation {
    condition     = length(setsubtract(keys(var.retention_days), ["requests", "replies", "wal", "audit", "audit.cuts", "dlq"])) == 0
    error_message = "retention_days names topics that keep records by time: requests, replies, wal, audit, audit.cuts, dlq."
  }
}

variable "accounts" {
  type        = map(string)
  default     = {}
  description = "Kafka's user name by role, where it is not the role's own name."
  validation {
    condition     = length(setsubtract(keys(var.accounts), keys(jsondecode(file("${path.module}/acls.json"))))) == 0
    error_message = "accounts names roles: ${join(", ", keys(jsondecode(file("${path.module}/acls.json"))))}."
  }
  validation {
    condition     = alltrue([for user in values(var.accounts) : can(regex("^[^,;=*]+$", user))])
    error_message = "accounts names one user of Kafka for each role, without User: before it and without * , ; =."
  }
}

variable "grants" {
  type        = list(object({ namespace = string, role = string, user = string }))
  default     = null
  description = "Which user of Kafka may ask, by commands on topics of its own, for what a role may do in a namespace. A list, also an empty one: these and no others may use such topics. null: who may is not said here, and is left as it is."
  validation {
    condition     = alltrue([for grant in coalesce(var.grants, []) : contains(jsondecode(file("${path.module}/topics.json")).grants.roles, grant.role)])
    error_message = "grants: role is one of ${join(", ", jsondecode(file("${path.module}/topics.json")).grants.roles)}."
  }
  validation {
    condition     = alltrue([for grant in coalesce(var.grants, []) : can(regex("^[a-z0-9][a-z0-9._-]{0,127}$", grant.namespace))])
    error_message = "grants: namespace is 1 to 128 of a-z 0-9 . _ - and starts with a-z 0-9."
  }
  validation {
    condition     = alltrue([for grant in coalesce(var.grants, []) : !startswith(grant.namespace, "cachemind.")])
    error_message = "grants: a namespace that begins with cachemind. is the installation's own, and is granted to nobody."
  }
  validation {
    condition     = alltrue([for grant in coalesce(var.grants, []) : length("${var.prefix}.requests.${grant.namespace}.${grant.role}") <= 249])
    error_message = "grants: prefix, namespace and role together make a topic's name longer than Kafka's 249 characters."
  }
  validation {
    condition     = length(distinct([for grant in coalesce(var.grants, []) : replace("${grant.namespace}.${grant.role}", ".", "_")])) == length(distinct([for grant in coalesce(var.grants, []) : "${grant.namespace}.${grant.role}"]))
    error_message = "grants: two namespaces differ by . and _ alone, which Kafka does not let topics do."
  }
  validation {
    condition     = alltrue([for grant in coalesce(var.grants, []) : can(regex("^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$", grant.user))])
    error_message = "grants: user is 1 to 64 of a-z A-Z 0-9 . _ @ - and begins with a letter or a number, without User: before it."
  }
  validation {
    condition     = length(setintersection([for grant in coalesce(var.grants, []) : grant.user], concat(keys(jsondecode(file("${path.module}/acls.json"))), values(var.accounts)))) == 0
    error_message = "grants: user is none of our own accounts, which have the rights of their roles."
  }
}

variable "key_ceremony" {
  type        = bool
  default     = false
  description = "Whether the log's keys are made or exchanged now: for that hour alone the role `ceremony` may write to the WAL."
}
