variable "name" {
  type        = string
  description = "First part of the name of everything that is created."
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,19}$", var.name))
    error_message = "name is 2 to 20 of a-z, 0-9 and -, and begins with a letter."
  }
}

variable "availability_zones" {
  type        = list(string)
  description = "Zones to spread over; brokers and tasks are in all of them."
  validation {
    condition     = length(distinct(var.availability_zones)) == length(var.availability_zones) && length(var.availability_zones) >= 2
    error_message = "availability_zones names at least two zones, each once; three for a cluster that outlives one."
  }
}

variable "cidr" {
  type        = string
  default     = "10.64.0.0/20"
  description = "Addresses of the network that is made. Not used with `existing`."
  validation {
    condition     = can(regex("^(10\\.|192\\.168\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.)", var.cidr)) && can(cidrsubnet(var.cidr, 4, 0))
    error_message = "cidr is a private range (RFC 1918), for example 10.64.0.0/20."
  }
}

variable "existing" {
  type = object({
    vpc_id          = string
    subnet_ids      = list(string)
    route_table_ids = list(string)
  })
  default     = null
  description = "Private subnets that are there already; nothing but endpoints and security groups is then made."
}

variable "existing_endpoints" {
  type = object({
    services           = optional(set(string), [])
    security_group_ids = optional(set(string), [])
    cidrs              = optional(set(string), [])
  })
  default     = {}
  description = "Endpoints of AWS that the network has already and that are not made again: of which services, and in which security groups or at which addresses those with an interface are. Their owner lets the groups of output `endpoint_clients` in, to port 443."
  validation {
    condition     = var.existing != null || length(var.existing_endpoints.services) == 0
    error_message = "existing_endpoints is for a network that is there already (existing): one that is made here has none yet."
  }
  validation {
    condition     = length(setsubtract(var.existing_endpoints.services, ["ecr.api", "ecr.dkr", "kms", "logs", "s3", "secretsmanager"])) == 0
    error_message = "existing_endpoints.services names some of ecr.api, ecr.dkr, kms, logs, s3 (a gateway), secretsmanager: what tasks call."
  }
  validation {
    condition     = length(setsubtract(var.existing_endpoints.services, ["s3"])) == 0 || length(setunion(var.existing_endpoints.security_group_ids, var.existing_endpoints.cidrs)) > 0
    error_message = "existing_endpoints says where its interfaces are: security_group_ids, or cidrs where they are in another network; or tasks are not let out to them."
  }
  validation {
    condition     = alltrue([for id in var.existing_endpoints.security_group_ids : can(regex("^sg-[0-9a-z]+$", id))])
    error_message = "existing_endpoints.security_group_ids are written like sg-0123456789abcdef0."
  }
  validation {
    condition     = alltrue([for cidr in var.existing_endpoints.cidrs : can(cidrnetmask(cidr)) && try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "existing_endpoints.cidrs names ranges of /8 or smaller: not the whole internet."
  }
}

variable "client_cidrs" {
  type        = list(string)
  description = "Addresses of the applications that call the gateway: private ranges alone."
  validation {
    condition     = alltrue([for cidr in var.client_cidrs : can(regex("^(10\\.|192\\.168\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.)", cidr)) && can(cidrnetmask(cidr)) && try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "client_cidrs holds private ranges only (RFC 1918, /8 or smaller): the gateway is never open to the internet."
  }
}

variable "upstream" {
  type = object({
    cidrs = list(string)
    port  = number
  })
  description = "Where the model server is. The internet is reached through a proxy or an egress network with an address of its own."
  validation {
    condition     = length(var.upstream.cidrs) > 0 && alltrue([for cidr in var.upstream.cidrs : can(cidrnetmask(cidr)) && try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "upstream.cidrs names ranges of /8 or smaller: not the whole internet."
  }
  validation {
    condition     = var.upstream.port >= 1 && var.upstream.port <= 65535
    error_message = "upstream.port is a TCP port from 1 to 65535."
  }
}

variable "kafka" {
  type = object({
    port         = number
    cidrs        = list(string)
    client_cidrs = optional(list(string), [])
  })
  description = "Port of the brokers; `cidrs` where the cluster is not made here, else empty; `client_cidrs`: private ranges of the applications that speak Kafka to a cluster that is made here."
  validation {
    condition     = alltrue([for cidr in var.kafka.client_cidrs : can(regex("^(10\\.|192\\.168\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.)", cidr)) && can(cidrnetmask(cidr)) && try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "kafka.client_cidrs holds private ranges only (RFC 1918, /8 or smaller): brokers are never open to the internet."
  }
  validation {
    condition     = alltrue([for cidr in var.kafka.cidrs : can(cidrnetmask(cidr)) && try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "kafka.cidrs names ranges of /8 or smaller: not the whole internet."
  }
}

variable "log_retention_days" {
  type        = number
  description = "How long flow logs are kept."
}

variable "storage_key_arn" {
  type        = string
  description = "KMS key that encrypts flow logs."
}
