/* A scene of two ranks, each with a copy of all: what either leaves the other has. */
#ifndef KVG_TEST_REBUILD_PAIR_H
#define KVG_TEST_REBUILD_PAIR_H

#include "tests/support/rebuild_scene.h"

static Scene scene;

static inline void open_pair(void)
{
    scene = (Scene){0};
    open_scene(&scene, &some_models[1], 2, 1, KVG_LAYOUT_POOL); /* latent: each rank has a copy of all */
}

#endif
