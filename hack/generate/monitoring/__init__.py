"""What is generated for Prometheus and Grafana: the page of metrics, alert rules, dashboards and a picture of one."""
