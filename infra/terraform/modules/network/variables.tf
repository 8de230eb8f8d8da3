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
    port  = number
    cidrs = list(string)
  })
  description = "Port of the brokers; `cidrs` where the cluster is not made here, else empty."
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
