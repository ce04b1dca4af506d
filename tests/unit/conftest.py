from hypothesis import HealthCheck, settings

# How fast the machine is at this moment says nothing about the code.
settings.register_profile("ddpjob", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ddpjob")
