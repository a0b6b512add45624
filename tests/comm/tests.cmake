# Comms that carry records on devices (kernels/comm_*.c). Their state machines need no GPU.
target_sources(test_comm_carried PRIVATE ${PROJECT_SOURCE_DIR}/kernels/comm_carried.c ${PROJECT_SOURCE_DIR}/kernels/comm_gather.c
  ${PROJECT_SOURCE_DIR}/kernels/comm_board.c ${PROJECT_SOURCE_DIR}/kernels/vote_send_ref.c)
