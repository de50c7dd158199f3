/* A graph that changes while others read it, for programs in C and for all that can call them. store_c.cpp holds the
   functions; store.h tells how the store works.

   Node types and relations are numbers from 0 on. Functions return 0 or one of the codes below; store_message() then
   says what is wrong and what to do. Wrong arguments never change the store. */
#ifndef GRAPH_STORE_STORE_C_H
#define GRAPH_STORE_STORE_C_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct store store;                   /* for any number of threads */
typedef struct store_snapshot store_snapshot; /* the graph in one version; for any number of threads */
typedef struct store_batch store_batch;       /* for one thread at a time, which uses it again and again */
typedef struct { /* the same form as `model_input` of an exported model */
  const void *data;
  int64_t sizes[4]; /* sizes beyond the second are 1 */
} store_tensor;

enum {
  STORE_OK = 0,
  STORE_BAD_ARGUMENT = 1,
  STORE_NO_NODE = 2,      /* a node does not exist */
  STORE_NO_EDGE = 3,      /* an edge does not exist */
  STORE_NO_MEMORY = 4,
  STORE_FAILED_WRITE = 5, /* the write cannot be finished, or there is none */
  STORE_IN_USE = 6,       /* a snapshot or a write has to end first */
  STORE_UNKNOWN = 7
};

/* Returns the text of the last error of the calling thread. */
const char *store_message(void);

/* Makes an empty graph. `widths` holds the number of features of each node type, `ends` [relations, 2] the types of
   sources and of destinations. */
int store_create(int64_t types, const int64_t *widths, int64_t relations, const int64_t *ends, store **made);

/* Fails while there are snapshots, or writes between store_begin and its end. */
int store_destroy(store *graph);

/* Changes. Each call is one write, of which readers see all or nothing. */
int store_add_nodes(store *graph, int64_t type, int64_t count, const float *features, int64_t *ids);
int store_set_features(store *graph, int64_t type, int64_t count, const int64_t *ids, const float *features);
int store_remove_nodes(store *graph, int64_t type, int64_t count, const int64_t *ids); /* and all their edges */
int store_add_edges(store *graph, int64_t relation, int64_t count, const int64_t *sources, const int64_t *destinations);
int store_remove_edges(store *graph, int64_t relation, int64_t count, const int64_t *sources,
                       const int64_t *destinations); /* one edge for each pair */

/* The changes of the calling thread from store_begin to store_commit are one write. Other writers wait for it. If one
   of them fails, so does store_commit, which then undoes all of them, as store_abort does. */
int store_begin(store *graph);
int store_commit(store *graph);
int store_abort(store *graph);

/* Takes the graph as the last finished write has left it. Readers never wait. What a snapshot can see is kept until it
   is released, so keep it for a short time. */
int store_snapshot_take(const store *graph, store_snapshot **made);
void store_snapshot_release(store_snapshot *snapshot);
int store_snapshot_sizes(const store_snapshot *snapshot, int64_t *nodes, int64_t *edges); /* by type, by relation */

int store_batch_create(store_batch **made);
void store_batch_destroy(store_batch *batch);

/* Fills a batch with nodes within `hops` hops of the seeds, as PyG's NeighborLoader does (directed, without
   replacement). `fanouts` [hops, relations] says how many edges into each node to take, -1 for all. */
int store_neighbourhood(const store_snapshot *snapshot, int64_t type, int64_t count, const int64_t *seeds, int64_t hops,
                        const int64_t *fanouts, uint64_t random_seed, store_batch *batch);

/* Writes the inputs of a model: for each type the features, float [nodes, width], then for each relation the edges,
   int64 [2, edges], whose nodes are places in the batch. They are valid until the batch is filled again. */
int store_batch_inputs(const store_batch *batch, store_tensor *inputs);

/* Gives the ids of the nodes of a type in the store. Seeds come first. */
int store_batch_ids(const store_batch *batch, int64_t type, const int64_t **ids, int64_t *count);

#ifdef __cplusplus
}
#endif
#endif
