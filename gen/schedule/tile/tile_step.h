/* tile_step.h: what the parts share that print one step of schedule `tile`: tile_place.c, tile_value.c, tile_sums.c,
 * tile_outs.c, tile_when.c, and tile_step.c, which puts them together. */
#ifndef CELLC_TILE_STEP_H
#define CELLC_TILE_STEP_H

#include "tile.h"

static inline Node node(const Step *s, NodeId id)
{
    return s->t->m->nodes.data[id];
}

/* ---- tile_place.c ---- */

bool tile_rows_exact(const Tile *t);              /* are there as many rows as the layout has? */
bool tile_cols_exact(const Tile *t);
/* The number, along the side, of the thread's element `i` of those from `first` on ("" or " + ..."). */
const char *tile_numbered(Tile *t, bool rows, const char *from, const char *first, const char *i);
const char *tile_own_number(Tile *t, bool rows, const char *i);   /* the same, counted from the thread's first element */
const char *tile_both(Tile *t, const char *a, const char *b);     /* two conditions; NULL: none */

/* ---- tile_value.c ---- */

const char *tile_held_version(const Step *s, NodeId read);        /* the variable that holds the value; NULL: none does */
const char *tile_element(Tile *t, const char *name, bool row, bool col);
NodeId tile_body_at(Step *s, NodeId array, const IxExpr *const *map);
bool tile_is_read(const Node *n);
bool tile_is_fetch(Step *s, NodeId id);                           /* does the read come from memory? */
bool tile_reads_registers(Step *s, NodeId id);                    /* that only their owner has */
const char *tile_root_variable(const Step *s, const StateInfo *st);
void tile_assign_state(Step *s, int k);                           /* its next value, once a step */

/* ---- tile_sums.c ---- */

int red_warps(const Tile *t, const Red *r);                       /* that hold partial results */
bool red_shared(const Tile *t, const Red *r);                     /* do other threads read it within the step, or of it what warps add up? */
bool red_published(const Tile *t, const Red *r);                  /* does it go to the exchange buffer? */
bool red_far(const Tile *t, const Red *r);                        /* to those of all blocks of the cluster? */
bool red_rows(const Red *r);                                      /* is there one for each row? */
bool red_cols(const Red *r);
bool red_spread(const Tile *t, const Red *r);                     /* each block gets what it stores */
int red_count(const Tile *t, const Red *r);                       /* elements in a thread */
int red_pitch(const Tile *t, const Red *r);                       /* elements of one warp's part in the exchange buffer */
const char *red_first(const Tile *t, const Red *r);               /* where the thread's own elements begin there */
const char *red_own(const Tile *t, const Red *r);                 /* what the thread accumulates into */
const char *red_function(ReduceOp op);
const char *red_combine(Tile *t, ReduceOp op, const char *a, const char *b);
void tile_mark_reds(Step *s, NodeId id, bool *seen, bool *marks); /* the reductions that the value reads, through what the step computes */

typedef struct LaneGroup { int stride, size; } LaneGroup;

/* What a lane holds of a reduction's results: how many elements, from which on; who speaks for lanes that hold the
 * same (NULL: each lane has its own), and how many they are, `copy` the number among them. */
typedef struct Share { int count; const char *first, *lanes; int copies; const char *copy; } Share;

LaneGroup tile_lanes_of(const Tile *t, const Red *r);             /* those that add up their parts */
bool tile_scatters(int n, int lanes);                             /* can the lanes keep n sums apart? */
Share tile_share_of(Tile *t, const Red *r, int n);                /* after a reduce-scatter */
void tile_declare_red(Step *s, const Red *r, const char *name, Buf *out);
void tile_accumulate(Step *s, Red *r);                            /* into the open loop */
void tile_finish_red(Step *s, Red *r, Buf *out);                  /* across the lanes, and into the exchange buffer */
void tile_pass_red(Step *s, Red *r, Buf *out);                    /* on to the next step, which finishes it */

/* ---- tile_outs.c ---- */

/* A value that the step stores. inner: axes on the chip; row, col: at the elements that their owners hold. */
typedef struct Out {
    NodeId array, original;
    const IxExpr *const
        *place; /* per axis of the original: of those that it is taken apart along, which; or NULL */
    int ref;
    Role role[TILE_MAX_AXES];
    int flat[TILE_MAX_AXES];      /* the parallel axis that the axis holds as well, -1: none */
    const Poly *extent[TILE_MAX_AXES];       /* of what is on the chip */
    int inner;
    bool row, col;
} Out;

Out tile_describe_out(Step *s, int k);
Wants tile_out_wants(const Step *s, int k);
NodeId tile_out_value(Step *s, const Out *o, const IxExpr **map);  /* sets map to the element that is stored */
const IxExpr *tile_out_place(Step *s, const Out *o, const IxExpr *const *map, const Poly **pitch);  /* in the step's row, and how long a row is */
const char *tile_out_address(Step *s, const Out *o, const IxExpr *const *map);
const char *tile_out_condition(const Step *s, const Out *o);      /* is it asked for; NULL: the open block says so */
bool tile_may_add(const Tile *t, const Out *o);                   /* to a gradient that the caller has */
void tile_store_out(Step *s, const Out *o, const IxExpr *const *map, const char *value, Buf *out);
void tile_print_out(Step *s, int k, int *warp, Buf *out);         /* warp: the first that is free, moved on */
void tile_open_if(Buf *out, const char *condition);               /* NULL: no condition */
void tile_close_if(Buf *out, const char *condition);

/* ---- tile_when.c ---- */

void tile_place_outs(Step *s);
void tile_print_late(Step *s, int *warp);
void tile_print_behind(Step *s);

#endif
