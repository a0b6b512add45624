#include <stdio.h>

#include "launch/command/command.h"

int kvg_command_replay(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    fprintf(stderr, "kvgrid replay: replay is not in this build yet; kvgrid plan shows how a model falls on a grid\n");
    return KVG_EXIT_USE;
}
