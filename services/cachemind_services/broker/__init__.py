"""Real Apache Kafka by pip alone: fetched, verified, started, watched, stopped."""

from cachemind_services.broker.distribution import KafkaDistribution
from cachemind_services.broker.embedded import BrokerStatus, EmbeddedBroker

__all__ = ["BrokerStatus", "EmbeddedBroker", "KafkaDistribution"]
