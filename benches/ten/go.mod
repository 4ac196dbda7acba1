module fleetgate.example/ten

go 1.19
