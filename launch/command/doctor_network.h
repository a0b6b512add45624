/* Doctor, the network's check: the address that ranks on other hosts would be told. Private. */
#ifndef KVG_COMMAND_DOCTOR_NETWORK_H
#define KVG_COMMAND_DOCTOR_NETWORK_H

#include "launch/command/doctor_host.h"

void kvg_doctor_network(Finding *finding);

#endif
