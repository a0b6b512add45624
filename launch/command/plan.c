#include <stdio.h>

#include "launch/command/command.h"

int kvg_command_plan(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    fprintf(stderr, "kvgrid plan: plan is not in this build yet\n");
    return KVG_EXIT_USE;
}
