"""Written by launch/python/abi.py from the public headers: do not edit."""
from ctypes import (CFUNCTYPE, POINTER, c_char, c_char_p, c_double, c_float, c_int, c_int8, c_int16, c_int32, c_int64, c_size_t,
                    c_uint, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)

from ._struct import Structure, Union

VERSION = "0.1.0"

CONSTANTS = {
    "KVG_OK": 0,
    "KVG_EINVAL": 1,
    "KVG_EGEOM": 2,
    "KVG_EOVERFLOW": 3,
    "KVG_ENOMEM": 4,
    "KVG_ECAPACITY": 5,
    "KVG_EBUSY": 6,
    "KVG_ESTALE": 7,
    "KVG_ELAPPED": 8,
    "KVG_ENOFIT": 9,
    "KVG_ELAYOUT": 10,
    "KVG_ETAINTED": 11,
    "KVG_EREFUSED": 12,
    "KVG_EINDOUBT": 13,
    "KVG_EPEER": 14,
    "KVG_EDEVICE": 15,
    "KVG_EIO": 16,
    "KVG_EFORMAT": 17,
    "KVG_ENOTSUP": 18,
    "KVG_STATUS_COUNT": 19,
    "KVG_LOG_ERROR": 0,
    "KVG_LOG_WARN": 1,
    "KVG_LOG_INFO": 2,
    "KVG_RANGE_PLAN": 0,
    "KVG_RANGE_WRITE": 1,
    "KVG_RANGE_POST": 2,
    "KVG_RANGE_DECIDE": 3,
    "KVG_RANGE_PUBLISH": 4,
    "KVG_RANGE_GROW": 5,
    "KVG_RANGE_CAPTURE": 6,
    "KVG_RANGE_RUN": 7,
    "KVG_RANGE_COUNT": 8,
    "KVG_BLOCK_ELEMENTS": 32,
    "KVG_POLICY": 0,
    "KVG_F32": 1,
    "KVG_F16": 2,
    "KVG_BF16": 3,
    "KVG_Q8_0": 4,
    "KVG_Q5_1": 5,
    "KVG_Q4_0": 6,
    "KVG_FP8": 7,
    "KVG_FORMAT_COUNT": 8,
    "KVG_INTERFACE_BYTES": 64,
    "KVG_RECURRENT_PARTS_MAX": 6,
    "KVG_STATE_NONE": 0,
    "KVG_STATE_KV": 1,
    "KVG_STATE_SLIDING_KV": 2,
    "KVG_STATE_LATENT": 3,
    "KVG_STATE_RECURRENT": 4,
    "KVG_STATE_SHARED": 5,
    "KVG_STATE_KIND_COUNT": 6,
    "KVG_INDEX_NONE": 0,
    "KVG_INDEX_POOLED": 1,
    "KVG_INDEX_PER_TOKEN": 2,
    "KVG_FORMAT_ORDINARY": 0,
    "KVG_FORMAT_GEMMA_GLOBAL": 1,
    "KVG_FORMAT_GEMMA_WINDOWED": 2,
    "KVG_PRIME_CHUNK_MAX_TOKENS": 4096,
    "KVG_SWA_REWIND_SLACK_ROWS": 512,
    "KVG_RING_ALIGN_ROWS": 32,
    "KVG_RING_CONTIGUOUS": 0,
    "KVG_RING_REBASE": 1,
    "KVG_INDEX_RING_WORKING_ROWS": 5120,
    "KVG_INDEX_RING_UNSET": -1,
    "KVG_TP_KV_INIT_FLAT": 0,
    "KVG_TP_KV_INIT_POOLED": 1,
    "KVG_TP_KV_LINEAR": 0,
    "KVG_TP_KV_RING": 1,
    "KVG_TP_KV_POOLED": 2,
    "KVG_TP_KV_POOLED_WINDOWED": 3,
    "KVG_VOTE_HEADER_BYTES": 64,
    "KVG_VOTE_ACCEPTED_ALL": 65535,
    "KVG_VOTE_PUBLISH": 0,
    "KVG_VOTE_REFUSED": 1,
    "KVG_VOTE_DISAGREE": 2,
    "KVG_VOTE_UNACCEPTED": 3,
    "KVG_VOTE_FIELD_STATUS": 0,
    "KVG_VOTE_FIELD_EPOCH": 1,
    "KVG_VOTE_FIELD_STEP": 2,
    "KVG_VOTE_FIELD_TARGETS": 3,
    "KVG_VOTE_FIELD_ACCEPTED": 4,
    "KVG_VOTE_FIELD_LAYOUT": 5,
    "KVG_VOTE_FIELD_USER": 6,
    "KVG_VOTE_FIELD_COUNT": 7,
    "KVG_VOTE_DEVICE_RANKS_MAX": 72,
    "KVG_VOTE_CLASSES_MAX": 8,
    "KVG_VOTE_ACCEPTS_NONE": 0,
    "KVG_VOTE_ACCEPTS_COUNTS": 1,
    "KVG_VOTE_ACCEPTS_ALL": 2,
    "KVG_VOTE_RUNS": 0,
    "KVG_VOTE_STOP_OUTCOME": 1,
    "KVG_VOTE_STOP_REPLAY": 2,
    "KVG_VOTE_STOP_DONE": 3,
    "KVG_VOTE_WORD_NONE": 0,
    "KVG_VOTE_WORD_DECIDED": 1,
    "KVG_VOTE_WORD_INDOUBT": 2,
    "KVG_VOTE_WORD_STOPPED": 3,
    "KVG_KV_LAYER_FIXED_BYTES": 20,
    "KVG_INPROC_DELIVER": 0,
    "KVG_INPROC_DROP": 1,
    "KVG_INPROC_DELAY": 2,
    "KVG_INPROC_DUPLICATE": 3,
    "KVG_RENDEZVOUS_BYTES_MAX": 1048576,
    "KVG_RENDEZVOUS_ALL_MAX": 67108864,
    "KVG_RENDEZVOUS_ANY_RANK": -1,
    "KVG_SHM_RANKS_MAX": 1024,
    "KVG_SHM_BYTES_MAX": 67108864,
    "KVG_CHUNK_ROWS": 64,
    "KVG_LAYOUT_POOL": 0,
    "KVG_LAYOUT_FLAT": 1,
    "KVG_PLANE_K": 0,
    "KVG_PLANE_V": 1,
    "KVG_PLANE_LATENT": 2,
    "KVG_PLANE_INDEX_ROWS": 3,
    "KVG_PLANE_KEYS": 4,
    "KVG_PLANE_CONV": 5,
    "KVG_PLANE_STATE": 6,
    "KVG_PLAN_CLASSES_MAX": 8,
    "KVG_LOSS_NONE": 0,
    "KVG_LOSS_SHARD": 1,
    "KVG_LOSS_CALLS": 2,
    "KVG_LOSS_TAINTED": 3,
    "KVG_VOTE_ACT_POST": 1,
    "KVG_VOTE_ACT_DECIDE": 2,
    "KVG_OUTCOME_PUBLISHED": 0,
    "KVG_OUTCOME_REFUSED": 1,
    "KVG_OUTCOME_DISAGREE": 2,
    "KVG_OUTCOME_UNACCEPTED": 3,
    "KVG_OUTCOME_TAINTED": 4,
    "KVG_OUTCOME_SETTLED_BACK": 5,
    "KVG_ACCEPT_ALL": 0,
    "KVG_ACCEPT_DEVICE": 1,
    "KVG_ACCEPT_OTHERS": 2,
    "KVG_OUTCOME_KINDS": 6,
    "KVG_LATENCY_BUCKETS": 24,
    "KVG_VERSION_MAJOR": 0,
    "KVG_VERSION_MINOR": 1,
    "KVG_VERSION_PATCH": 0,
}


class KvgTracer(Structure):
    pass


class KvEncodeCounts(Structure):
    pass


class KvgPolicy(Structure):
    pass


class KvgKnob(Structure):
    pass


class KvCachePlan(Structure):
    pass


class LatentKvPlan(Structure):
    pass


class RecurrentPart(Structure):
    pass


class RecurrentPlan(Structure):
    pass


class StatePlan(Structure):
    pass


class StatePlan_u(Union):
    pass


class ModelPlan(Structure):
    pass


class ModelConfig(Structure):
    pass


class KvSizing(Structure):
    pass


class KvRing(Structure):
    pass


class KvRingAppend(Structure):
    pass


class TpKvState(Structure):
    pass


class TpKvTransaction(Structure):
    pass


class TpKvAppendPlan(Structure):
    pass


class TpKvGrowPlan(Structure):
    pass


class KvVoteRecord(Structure):
    pass


class KvVoteOutcome(Structure):
    pass


class KvVoteControl(Structure):
    pass


class KvVoteBoard(Structure):
    pass


class KvVoteWords(Structure):
    pass


class KvVoteClass(Structure):
    pass


class KvVoteArrays(Structure):
    pass


class KvVoteWord(Structure):
    pass


class HeadShard(Structure):
    pass


class TpKvRankAllocationShape(Structure):
    pass


class ResidentTpKvCacheRank(Structure):
    pass


class ResidentTpKvCache(Structure):
    pass


class KvRange(Structure):
    pass


class KvRowsIn(Structure):
    pass


class KvRowsAt(Structure):
    pass


class KvPatch(Structure):
    pass


class KvMemory(Structure):
    pass


class KvAvailable(Structure):
    pass


class KvRowsBatch(Structure):
    pass


class KvDevRunOps(Structure):
    pass


class KvRecurrentPass(Structure):
    pass


class KvDevOps(Structure):
    pass


class KvDev(Structure):
    pass


class KvgBootstrap(Structure):
    pass


class KvCommOps(Structure):
    pass


class KvComm(Structure):
    pass


class KvLivenessOps(Structure):
    pass


class KvLiveness(Structure):
    pass


class KvInproc(Structure):
    pass


class KvMeshOptions(Structure):
    pass


class KvRendezvousOptions(Structure):
    pass


class KvShmOptions(Structure):
    pass


class KvShmCommOptions(Structure):
    pass


class KvPlane(Structure):
    pass


class KvPlaneView(Structure):
    pass


class KvLatentView(Structure):
    pass


class KvCache(Structure):
    pass


class LatentPlaneSnapshot(Structure):
    pass


class LatentTailCapture(Structure):
    pass


class KvRecurrentPartView(Structure):
    pass


class KvRecurrentView(Structure):
    pass


class KvPlaneRef(Structure):
    pass


class KvBatchPlane(Structure):
    pass


class DflashTapSink(Structure):
    pass


class HcTapSink(Structure):
    pass


class KvLeaf(Structure):
    pass


class KvDigest(Structure):
    pass


class KvGridPlanOptions(Structure):
    pass


class KvClassPlan(Structure):
    pass


class KvRankPlan(Structure):
    pass


class KvGridPlan(Structure):
    pass


class KvgLedger(Structure):
    pass


class KvgGrid(Structure):
    pass


class KvgSetup(Structure):
    pass


class KvgGridOptions(Structure):
    pass


class KvgPlacement(Structure):
    pass


class KvgPlaceOptions(Structure):
    pass


class KvgSequence(Structure):
    pass


class KvgSnapshot(Structure):
    pass


class KvgRows(Structure):
    pass


class KvgSequenceInfo(Structure):
    pass


class KvgRebuildOptions(Structure):
    pass


class KvgRebuiltSequence(Structure):
    pass


class KvgRebuildReport(Structure):
    pass


class KvgJoin(Structure):
    pass


class KvgBatch(Structure):
    pass


class KvgStep(Structure):
    pass


class KvgLatentRows(Structure):
    pass


class KvgRecurrentRows(Structure):
    pass


class KvgCommit(Structure):
    pass


class KvgOutcome(Structure):
    pass


class KvgGraph(Structure):
    pass


class KvgCapture(Structure):
    pass


class KvgRunArrays(Structure):
    pass


class KvgRunResult(Structure):
    pass


class KvgStats(Structure):
    pass


class KvgLabel(Structure):
    pass


class KvgAccounts(Structure):
    pass


class KvgAccountsOptions(Structure):
    pass


class KvgAccountsMark(Structure):
    pass


class KvRecurrentBatch(Structure):
    pass


class KvMove(Structure):
    pass


class KvCommBoardOptions(Structure):
    pass


class KvgCudaOptions(Structure):
    pass


KvgStream = c_void_p
KvEvent = c_void_p
KvgLogFn = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
KvInprocFilter = CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int, c_void_p, c_size_t, POINTER(c_uint64))
KvPoolKeyFn = CFUNCTYPE(None, c_void_p, c_uint32, c_uint64, POINTER(c_float), POINTER(c_float))
KvgRecurrentFillFn = CFUNCTYPE(None, c_void_p, c_uint32, c_uint32, c_uint64, POINTER(c_float), POINTER(c_float))
KvgTracer._fields_ = [
    ("size", c_size_t),
    ("begin", CFUNCTYPE(None, c_void_p, c_int, c_uint64)),
    ("end", CFUNCTYPE(None, c_void_p, c_int)),
    ("user", c_void_p),
]
KvEncodeCounts._fields_ = [
    ("nonfinite", c_uint64),
    ("saturated", c_uint64),
]
KvgPolicy._fields_ = [
    ("size", c_size_t),
    ("format_k", c_int),
    ("format_v", c_int),
    ("gemma_gkv", c_uint8),
    ("gemma_wkv", c_uint8),
    ("kv_fp8", c_int8),
    ("kv_fp8_force", c_int8),
    ("swa_ring", c_int8),
    ("swa_ring_default", c_int8),
    ("dsa_index_ring", c_int64),
    ("timeout_ms", c_uint32),
    ("peer_ms", c_uint32),
    ("interface", c_char * 64),
]
KvgKnob._fields_ = [
    ("name", c_char_p),
    ("alias", c_char_p),
    ("value", c_char * 64),
    ("source", c_char * 48),
    ("meaning", c_char_p),
    ("unread", c_int),
]
KvCachePlan._fields_ = [
    ("kv_heads", c_uint32),
    ("head_dim_k", c_uint32),
    ("head_dim_v", c_uint32),
    ("query_heads", c_uint32),
    ("window", c_uint64),
    ("format_class", c_int),
]
LatentKvPlan._fields_ = [
    ("width", c_uint32),
    ("kv_rank", c_uint32),
    ("index_kind", c_int),
    ("index_width", c_uint32),
    ("index_pool", c_uint32),
]
RecurrentPart._fields_ = [
    ("heads", c_uint32),
    ("width", c_uint32),
    ("is_state", c_uint8),
]
RecurrentPlan._fields_ = [
    ("parts", RecurrentPart * 6),
    ("part_count", c_uint32),
    ("conv_width", c_uint32),
    ("conv_kernel", c_uint32),
    ("state_width", c_uint64),
]
StatePlan_u._fields_ = [
    ("kv", KvCachePlan),
    ("latent", LatentKvPlan),
    ("recurrent", RecurrentPlan),
    ("shared_source", c_uint32),
]
StatePlan._fields_ = [
    ("kind", c_int),
    ("u", StatePlan_u),
]
ModelPlan._fields_ = [
    ("n_layer", c_uint32),
    ("n_mtp", c_uint32),
    ("layers", POINTER(StatePlan)),
]
ModelConfig._fields_ = [
    ("name", c_char * 64),
    ("model_type", c_char * 64),
    ("context", c_uint64),
    ("hidden_size", c_uint32),
    ("query_heads", c_uint32),
    ("vocab_size", c_uint64),
    ("weight_bytes", POINTER(c_uint64)),
    ("embedding_bytes", c_uint64),
    ("head_bytes", c_uint64),
    ("head_is_tied", c_uint8),
    ("plan", ModelPlan),
]
KvSizing._fields_ = [
    ("policy", KvgPolicy),
    ("format_k", c_int),
    ("format_v", c_int),
    ("format_latent", c_int),
]
KvRing._fields_ = [
    ("rows", c_uint64),
    ("window", c_uint64),
    ("base", c_uint64),
]
KvRingAppend._fields_ = [
    ("kind", c_int),
    ("write_row", c_uint64),
    ("src_row", c_uint64),
    ("keep_rows", c_uint64),
    ("new_base", c_uint64),
]
TpKvState._fields_ = [
    ("committed", c_uint64),
    ("staged", c_uint64),
    ("capacity", c_uint64),
    ("ring", KvRing),
    ("next_generation", c_uint64),
    ("publishes", c_uint32),
    ("prefill_chunk_max", c_uint16),
    ("layout", c_uint8),
    ("active", c_uint8),
]
TpKvTransaction._fields_ = [
    ("generation", c_uint64),
    ("base_len", c_uint64),
]
TpKvAppendPlan._fields_ = [
    ("target", c_uint64),
    ("write_row", c_uint64),
    ("ring_append", KvRingAppend),
    ("publishes", c_uint32),
    ("has_ring", c_uint8),
]
TpKvGrowPlan._fields_ = [
    ("capacity", c_uint64),
    ("rows", c_uint64),
    ("source_row", c_uint64),
    ("copy_rows", c_uint64),
    ("target_base", c_uint64),
    ("k_bytes", c_uint64),
    ("v_bytes", c_uint64),
    ("publishes", c_uint32),
]
KvVoteRecord._fields_ = [
    ("step", c_uint64),
    ("epoch", c_uint32),
    ("status", c_int16),
    ("rank", c_uint16),
    ("targets", c_uint64),
    ("accepted", c_uint64),
    ("layout", c_uint64),
    ("user", c_uint64),
    ("decided", c_uint64),
    ("count", c_uint32),
    ("reserved", c_uint32),
    ("accepted_rows", c_uint16 * 0),
]
KvVoteOutcome._fields_ = [
    ("kind", c_uint8),
    ("field", c_uint8),
    ("status", c_int16),
    ("rank", c_uint16),
    ("rank_b", c_uint16),
]
KvVoteControl._fields_ = [
    ("deadline", c_uint64),
    ("stop", c_uint64),
]
KvVoteBoard._fields_ = [
    ("base", POINTER(c_uint8)),
    ("stride", c_uint64),
    ("rank", c_uint32),
    ("ranks", c_uint32),
    ("tp", c_uint32),
    ("slots", c_uint32),
    ("sequences_max", c_uint32),
    ("control", POINTER(KvVoteControl)),
]
KvVoteWords._fields_ = [
    ("step", c_uint64),
    ("decided", c_uint64),
    ("posted", c_uint64),
    ("ahead", c_uint64),
    ("stop", c_uint32),
    ("advance", c_uint32),
    ("running", c_uint64),
    ("layout", c_uint64),
    ("user", c_uint64),
    ("last", c_uint64),
    ("epoch", c_uint32),
    ("count", c_uint32),
    ("status", c_int32),
    ("accepts", c_uint32),
    ("reserved", c_uint64),
]
KvVoteClass._fields_ = [
    ("base_row", POINTER(c_uint32)),
    ("keep", c_uint32),
]
KvVoteArrays._fields_ = [
    ("words", POINTER(KvVoteWords)),
    ("ahead", c_void_p),
    ("accepted", POINTER(c_uint32)),
    ("next_rows", POINTER(c_uint32)),
    ("outcome", POINTER(c_uint64)),
    ("entries", c_uint32),
    ("classes", c_uint32),
    ("len", POINTER(c_uint32)),
    ("len_staged", POINTER(c_uint32)),
    ("taken", POINTER(c_uint32)),
    ("rows", POINTER(c_uint32)),
    ("first_row", POINTER(c_uint32)),
    ("columns", c_uint32),
    ("read", POINTER(c_int32)),
    ("write", POINTER(c_int32)),
    ("each", POINTER(c_int32)),
    ("slots", POINTER(c_int32)),
    ("ids", POINTER(c_uint64)),
    ("generations", POINTER(c_uint64)),
    ("class_at", KvVoteClass * 8),
]
KvVoteWord._fields_ = [
    ("kind", c_int),
    ("step", c_uint64),
    ("outcome", KvVoteOutcome),
    ("missing", c_uint32),
]
HeadShard._fields_ = [
    ("first", c_uint32),
    ("count", c_uint32),
    ("replicas", c_uint32),
]
TpKvRankAllocationShape._fields_ = [
    ("kv_dim_k", c_uint64),
    ("kv_dim_v", c_uint64),
    ("k_token_bytes", c_uint64),
    ("v_token_bytes", c_uint64),
    ("fixed_bytes", c_uint64),
]
ResidentTpKvCacheRank._fields_ = [
    ("tp_rank", c_uint32),
    ("shapes", POINTER(TpKvRankAllocationShape)),
]
ResidentTpKvCache._fields_ = [
    ("state", TpKvState),
    ("layer_count", c_uint32),
    ("rank_count", c_uint32),
    ("ranks", POINTER(ResidentTpKvCacheRank)),
]
KvRange._fields_ = [
    ("base", POINTER(c_uint8)),
    ("reserved", c_size_t),
    ("taken", c_size_t),
]
KvRowsIn._fields_ = [
    ("data", c_void_p),
    ("type", c_int),
    ("token_stride", c_int64),
    ("head_stride", c_int64),
]
KvRowsAt._fields_ = [
    ("target", POINTER(c_uint8)),
    ("head_stride", c_size_t),
    ("row_stride", c_size_t),
]
KvPatch._fields_ = [
    ("index", c_uint32),
    ("value", c_uint32),
]
KvMemory._fields_ = [
    ("alloc", CFUNCTYPE(c_void_p, c_void_p, c_size_t)),
    ("free", CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)),
    ("user", c_void_p),
]
KvAvailable._fields_ = [
    ("bytes", c_uint64),
    ("memory", c_uint64),
]
KvDevOps._fields_ = [
    ("name", c_char_p),
    ("direct", c_int),
    ("zeros", CFUNCTYPE(c_int, c_void_p, c_size_t, POINTER(c_void_p))),
    ("uninit", CFUNCTYPE(c_int, c_void_p, c_size_t, POINTER(c_void_p))),
    ("free", CFUNCTYPE(None, c_void_p, c_void_p)),
    ("granularity", CFUNCTYPE(c_size_t, c_void_p)),
    ("reserve", CFUNCTYPE(c_int, c_void_p, c_size_t, POINTER(KvRange))),
    ("extend", CFUNCTYPE(c_int, c_void_p, POINTER(KvRange), c_size_t)),
    ("give_back", CFUNCTYPE(c_int, c_void_p, POINTER(KvRange), c_size_t)),
    ("release", CFUNCTYPE(None, c_void_p, POINTER(KvRange))),
    ("taken_bytes", CFUNCTYPE(c_uint64, c_void_p)),
    ("htod", CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t, KvgStream)),
    ("dtoh", CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t, KvgStream)),
    ("move", CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t, KvgStream)),
    ("set_i32_one", CFUNCTYPE(c_int, c_void_p, POINTER(c_int32), c_int32, KvgStream)),
    ("synchronize", CFUNCTYPE(c_int, c_void_p, KvgStream)),
    ("event_create", CFUNCTYPE(c_int, c_void_p, POINTER(KvEvent))),
    ("event_destroy", CFUNCTYPE(None, c_void_p, KvEvent)),
    ("event_record", CFUNCTYPE(c_int, c_void_p, KvEvent, KvgStream)),
    ("stream_wait", CFUNCTYPE(c_int, c_void_p, KvgStream, KvEvent)),
    ("encode_rows", CFUNCTYPE(c_int, c_void_p, c_int, POINTER(KvRowsIn), KvRowsAt, c_uint32, c_uint32, c_uint32, POINTER(KvEncodeCounts), KvgStream)),
    ("decode_rows", CFUNCTYPE(c_int, c_void_p, c_int, KvRowsAt, c_uint32, c_uint32, c_uint32, POINTER(c_float), KvgStream)),
    ("patch", CFUNCTYPE(c_int, c_void_p, POINTER(c_uint32), POINTER(KvPatch), c_uint32, KvgStream)),
    ("clear", CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, KvgStream)),
    ("recurrent_pass", CFUNCTYPE(c_int, c_void_p, POINTER(KvRecurrentPass), KvgStream)),
    ("encode_batch", CFUNCTYPE(c_int, c_void_p, POINTER(KvRowsBatch), KvgStream)),
    ("move_rows", CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, KvgStream)),
    ("run", POINTER(KvDevRunOps)),
    ("available", CFUNCTYPE(c_int, c_void_p, POINTER(KvAvailable))),
    ("trim", CFUNCTYPE(None, c_void_p)),
    ("close", CFUNCTYPE(None, c_void_p)),
]
KvDev._fields_ = [
    ("ops", POINTER(KvDevOps)),
    ("self", c_void_p),
]
KvgBootstrap._fields_ = [
    ("size", c_size_t),
    ("user", c_void_p),
    ("rank", c_int),
    ("ranks", c_int),
    ("allgather", CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_uint32)),
]
KvCommOps._fields_ = [
    ("name", c_char_p),
    ("send", CFUNCTYPE(c_int, c_void_p, c_int, c_void_p, c_size_t)),
    ("recv", CFUNCTYPE(c_int, c_void_p, POINTER(c_int), POINTER(c_void_p), POINTER(c_size_t))),
    ("records_open", CFUNCTYPE(c_int, c_void_p, c_size_t)),
    ("post", CFUNCTYPE(c_int, c_void_p, c_void_p)),
    ("take", CFUNCTYPE(c_void_p, c_void_p, POINTER(c_int))),
    ("now_ns", CFUNCTYPE(c_uint64, c_void_p)),
    ("relax", CFUNCTYPE(None, c_void_p, c_uint64)),
    ("close", CFUNCTYPE(None, c_void_p)),
]
KvComm._fields_ = [
    ("ops", POINTER(KvCommOps)),
    ("self", c_void_p),
    ("rank", c_int),
    ("size", c_int),
]
KvLivenessOps._fields_ = [
    ("name", c_char_p),
    ("poll", CFUNCTYPE(None, c_void_p)),
    ("lost", CFUNCTYPE(c_int, c_void_p, c_int)),
    ("last_sign_ns", CFUNCTYPE(c_uint64, c_void_p, c_int)),
    ("why", CFUNCTYPE(c_char_p, c_void_p, c_int)),
    ("close", CFUNCTYPE(None, c_void_p)),
]
KvLiveness._fields_ = [
    ("ops", POINTER(KvLivenessOps)),
    ("self", c_void_p),
]
KvMeshOptions._fields_ = [
    ("size", c_size_t),
    ("timeout_ms", c_uint32),
    ("heartbeat_ms", c_uint32),
    ("tcp", c_int),
    ("interface", c_char_p),
    ("message_max", c_size_t),
]
KvRendezvousOptions._fields_ = [
    ("size", c_size_t),
    ("address", c_char_p),
    ("secret", c_char_p),
    ("rank", c_int),
    ("ranks", c_int),
    ("timeout_ms", c_uint32),
    ("listen_fd", c_int),
]
KvShmOptions._fields_ = [
    ("size", c_size_t),
    ("name", c_char_p),
    ("fd", c_int),
    ("rank", c_int),
    ("ranks", c_int),
    ("timeout_ms", c_uint32),
]
KvShmCommOptions._fields_ = [
    ("size", c_size_t),
    ("timeout_ms", c_uint32),
    ("lane_bytes", c_uint32),
    ("message_max", c_size_t),
]
KvPlane._fields_ = [
    ("base", POINTER(c_uint8)),
    ("chunk_bytes", c_size_t),
    ("slot_bytes", c_size_t),
    ("head_stride", c_size_t),
    ("row_stride", c_size_t),
    ("head_bytes", c_size_t),
    ("head_dim", c_uint32),
    ("format", c_int),
]
KvPlaneView._fields_ = [
    ("layer", c_uint32),
    ("owns", c_uint32),
    ("heads", c_uint32),
    ("head_first", c_uint32),
    ("window", c_uint64),
    ("rows_per_chunk", c_uint32),
    ("table_stride", c_uint32),
    ("k", KvPlane),
    ("v", KvPlane),
    ("table", POINTER(c_int32)),
    ("ring_rows", c_uint64),
    ("len", POINTER(c_uint32)),
    ("len_staged", POINTER(c_uint32)),
    ("base_row", POINTER(c_uint32)),
]
KvLatentView._fields_ = [
    ("layer", c_uint32),
    ("width", c_uint32),
    ("kv_rank", c_uint32),
    ("index_kind", c_int),
    ("index_width", c_uint32),
    ("key_width", c_uint32),
    ("pool", c_uint32),
    ("latent", KvPlane),
    ("keys", KvPlane),
    ("index", KvPlane),
    ("ring", POINTER(c_uint8)),
    ("ring_slot_bytes", c_size_t),
    ("index_row_bytes", c_size_t),
    ("ring_rows", c_uint64),
    ("rows_per_chunk", c_uint32),
    ("table_stride", c_uint32),
    ("plane_rows", c_uint64),
    ("table", POINTER(c_int32)),
    ("len", POINTER(c_uint32)),
    ("len_staged", POINTER(c_uint32)),
    ("pools_ready", POINTER(c_uint32)),
]
KvRecurrentPartView._fields_ = [
    ("is_state", c_uint32),
    ("heads", c_uint32),
    ("head_first", c_uint32),
    ("head_index", c_uint32),
    ("width", c_uint32),
    ("replicas", c_uint32),
    ("offset", c_uint64),
]
KvRecurrentView._fields_ = [
    ("layer", c_uint32),
    ("columns", c_uint32),
    ("taps", c_uint32),
    ("part_count", c_uint32),
    ("parts", KvRecurrentPartView * 6),
    ("conv_channels", c_uint64),
    ("conv_elements", c_uint64),
    ("state_elements", c_uint64),
    ("conv_slot_stride", c_uint64),
    ("state_slot_stride", c_uint64),
    ("conv", POINTER(c_float)),
    ("state", POINTER(c_float)),
    ("read", POINTER(c_int32)),
    ("write", POINTER(c_int32)),
    ("each", POINTER(c_int32)),
]
KvRecurrentPass._fields_ = [
    ("conv", POINTER(c_float)),
    ("state", POINTER(c_float)),
    ("read", c_uint32),
    ("write", c_uint32),
    ("each", c_uint32),
    ("columns", c_uint32),
    ("taps", c_uint32),
    ("channels", c_uint64),
    ("elements", c_uint64),
    ("rows", c_uint32),
    ("decay", c_float),
    ("x", POINTER(c_float)),
    ("u", POINTER(c_float)),
]
KvPlaneRef._fields_ = [
    ("plane", KvPlane),
    ("rows_per_chunk", c_uint32),
    ("table_stride", c_uint32),
    ("table", POINTER(c_int32)),
    ("ring_rows", c_uint64),
    ("base_row", POINTER(c_uint32)),
]
KvBatchPlane._fields_ = [
    ("to", KvPlaneRef),
    ("in", KvRowsIn),
]
KvRowsBatch._fields_ = [
    ("plane", KvBatchPlane * 2),
    ("planes", c_uint32),
    ("heads", c_uint32),
    ("places", c_uint32),
    ("rows_max", c_uint32),
    ("slots", POINTER(c_int32)),
    ("rows", POINTER(c_uint32)),
    ("first_row", POINTER(c_uint32)),
    ("len_staged", POINTER(c_uint32)),
    ("first_token", POINTER(c_uint32)),
    ("token_pitch", c_uint32),
    ("counts", POINTER(KvEncodeCounts)),
]
KvLeaf._fields_ = [
    ("layer", c_uint32),
    ("plane", c_uint32),
    ("head", c_uint32),
    ("reserved", c_uint32),
    ("hash", c_uint8 * 16),
]
KvDigest._fields_ = [
    ("bytes", c_uint8 * 16),
]
KvGridPlanOptions._fields_ = [
    ("size", c_size_t),
    ("tp", c_uint32),
    ("pp", c_uint32),
    ("sizing", KvSizing),
    ("layout", c_int),
    ("ctx", c_uint64),
    ("prefill_chunk_max", c_uint32),
    ("max_sequences", c_uint32),
    ("spec_columns", c_uint32),
    ("with_mtp", c_int),
    ("state_bytes", POINTER(c_uint64)),
    ("device_bytes", POINTER(c_uint64)),
    ("reserve_bytes", c_uint64),
    ("weights_bytes", c_uint64),
    ("layer_bytes", POINTER(c_uint64)),
    ("fence", POINTER(c_uint32)),
    ("granularity", c_size_t),
]
KvClassPlan._fields_ = [
    ("kind", c_int),
    ("window", c_uint64),
    ("ring", c_int),
    ("row_cap", c_uint64),
    ("unit_cap", c_uint32),
    ("units", c_uint32),
    ("units_per_sequence", c_uint32),
    ("layers", c_uint32),
]
KvRankPlan._fields_ = [
    ("rank", c_uint32),
    ("stage", c_uint32),
    ("tp_rank", c_uint32),
    ("lo", c_uint32),
    ("hi", c_uint32),
    ("bytes_per_token", c_uint64),
    ("ring_bytes_per_token", c_uint64),
    ("fixed_bytes", c_uint64),
    ("duplicate_bytes_per_token", c_uint64),
    ("duplicate_fixed_bytes", c_uint64),
    ("weight_bytes", c_uint64),
    ("state_bytes", c_uint64),
    ("class_unit_bytes", c_uint64 * 8),
    ("slot_bytes", c_uint64),
]
KvGridPlan._fields_ = [
    ("tp", c_uint32),
    ("pp", c_uint32),
    ("ranks_count", c_uint32),
    ("n_layer", c_uint32),
    ("n_mtp", c_uint32),
    ("ctx", c_uint64),
    ("max_ctx", c_uint64),
    ("prefill_chunk_max", c_uint32),
    ("fence", POINTER(c_uint32)),
    ("ranks", POINTER(KvRankPlan)),
    ("class_count", c_uint32),
    ("classes", KvClassPlan * 8),
    ("class_of_layer", POINTER(c_uint32)),
    ("format_k", POINTER(c_int)),
    ("format_v", POINTER(c_int)),
    ("memory_known", c_int),
    ("cache_tokens", c_uint64),
    ("max_context", c_uint64),
    ("max_sequences", c_uint64),
    ("slots", c_uint32),
    ("limiting_rank", c_int32),
]
KvgLedger._fields_ = [
    ("size", c_size_t),
    ("class_count", c_uint32),
    ("classes", KvClassPlan * 8),
    ("units_free", c_uint32 * 8),
    ("slots_total", c_uint32),
    ("slots_free", c_uint32),
    ("max_ctx", c_uint64),
]
KvgGridOptions._fields_ = [
    ("size", c_size_t),
    ("tp", c_uint32),
    ("pp", c_uint32),
    ("policy", POINTER(KvgPolicy)),
    ("comm", POINTER(KvComm)),
    ("liveness", POINTER(KvLiveness)),
    ("max_in_flight", c_uint32),
    ("on_lost", CFUNCTYPE(None, c_void_p, c_int, c_char_p)),
    ("user", c_void_p),
]
KvgPlaceOptions._fields_ = [
    ("size", c_size_t),
    ("format_k", c_int),
    ("format_v", c_int),
    ("format_latent", c_int),
    ("layout", c_int),
    ("max_sequences", c_uint32),
    ("max_step_sequences", c_uint32),
    ("memory_bytes", c_uint64),
    ("memory_max_bytes", c_uint64),
    ("layer_bytes", POINTER(c_uint64)),
    ("fence", POINTER(c_uint32)),
    ("ctx", c_uint64),
    ("prefill_chunk_max", c_uint32),
    ("spec_columns", c_uint32),
    ("with_mtp", c_int),
    ("device", POINTER(KvDev)),
    ("memory_reserve_bytes", c_uint64),
]
KvgSequenceInfo._fields_ = [
    ("size", c_size_t),
    ("id", c_uint64),
    ("rows", c_uint64),
    ("rows_staged", c_uint64),
    ("rows_booked", c_uint64),
    ("replay", c_uint64),
    ("generation", c_uint64),
    ("slot", c_uint32),
    ("tainted", c_int),
    ("in_step", c_int),
]
KvgRebuildOptions._fields_ = [
    ("size", c_size_t),
    ("comm", POINTER(KvComm)),
    ("liveness", POINTER(KvLiveness)),
]
KvgRebuiltSequence._fields_ = [
    ("placement", POINTER(KvgPlacement)),
    ("sequence", POINTER(KvgSequence)),
    ("id", c_uint64),
    ("rows", c_uint64),
    ("rows_held", c_uint64),
    ("loss", c_int),
    ("lost_layer", c_uint32),
    ("lost_head", c_uint32),
    ("lost_rank", c_int),
]
KvgRebuildReport._fields_ = [
    ("size", c_size_t),
    ("epoch", c_uint32),
    ("count", c_uint32),
    ("kept", c_uint32),
    ("joined", c_int),
    ("sequences", POINTER(KvgRebuiltSequence)),
]
KvgJoin._fields_ = [
    ("config", POINTER(ModelConfig)),
    ("options", POINTER(KvgPlaceOptions)),
    ("placement", POINTER(KvgPlacement)),
]
KvDevRunOps._fields_ = [
    ("words_new", CFUNCTYPE(c_int, c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p))),
    ("words_free", CFUNCTYPE(None, c_void_p, c_void_p)),
    ("capture_begin", CFUNCTYPE(c_int, c_void_p, KvgStream, POINTER(c_int))),
    ("capture_end", CFUNCTYPE(c_int, c_void_p, KvgStream, POINTER(c_void_p))),
    ("capture_drop", CFUNCTYPE(None, c_void_p, KvgStream)),
    ("graph_launch", CFUNCTYPE(c_int, c_void_p, c_void_p, KvgStream)),
    ("graph_free", CFUNCTYPE(None, c_void_p, c_void_p)),
    ("vote", CFUNCTYPE(c_int, c_void_p, c_uint, POINTER(KvVoteBoard), POINTER(KvVoteArrays), KvgStream)),
    ("peek", CFUNCTYPE(c_int, c_void_p, POINTER(KvVoteBoard), c_uint64, c_void_p, KvgStream)),
    ("event_test", CFUNCTYPE(c_int, c_void_p, KvEvent, POINTER(c_int))),
]
KvgRows._fields_ = [
    ("size", c_size_t),
    ("k", c_void_p),
    ("v", c_void_p),
    ("dtype", c_int),
    ("token_stride_k", c_int64),
    ("token_stride_v", c_int64),
    ("head_stride_k", c_int64),
    ("head_stride_v", c_int64),
    ("first_token", POINTER(c_uint32)),
]
KvgLatentRows._fields_ = [
    ("size", c_size_t),
    ("latent", c_void_p),
    ("index", c_void_p),
    ("dtype", c_int),
    ("token_stride_latent", c_int64),
    ("token_stride_index", c_int64),
    ("first_token", POINTER(c_uint32)),
    ("key", KvPoolKeyFn),
    ("user", c_void_p),
]
KvgRecurrentRows._fields_ = [
    ("size", c_size_t),
    ("fill", KvgRecurrentFillFn),
    ("user", c_void_p),
    ("decay", c_float),
    ("scratch", POINTER(c_float)),
]
KvgCommit._fields_ = [
    ("size", c_size_t),
    ("accepted", POINTER(c_uint32)),
    ("accept_all", c_int),
    ("user_digest", c_uint64),
    ("refuse", c_int),
]
KvgOutcome._fields_ = [
    ("size", c_size_t),
    ("step", c_uint64),
    ("kind", c_int),
    ("status", c_int),
    ("rank", c_int),
    ("rank_b", c_int),
    ("reason", c_int),
    ("field", c_char_p),
    ("accepted", POINTER(c_uint32)),
    ("replay", POINTER(c_uint32)),
]
KvgCapture._fields_ = [
    ("size", c_size_t),
    ("rows_per_slot", POINTER(c_uint32)),
    ("accept", c_int),
]
KvgRunArrays._fields_ = [
    ("size", c_size_t),
    ("slots", POINTER(c_int32)),
    ("rows", POINTER(c_uint32)),
    ("first_row", POINTER(c_uint32)),
    ("taken", POINTER(c_uint32)),
    ("accepted", POINTER(c_uint32)),
    ("user", POINTER(c_uint64)),
    ("status", POINTER(c_int32)),
]
KvgRunResult._fields_ = [
    ("size", c_size_t),
    ("first_step", c_uint64),
    ("published", c_uint64),
    ("outcome", KvgOutcome),
    ("rows", POINTER(c_uint32)),
]
KvgStats._fields_ = [
    ("size", c_size_t),
    ("content_bytes", c_uint64),
    ("booked_bytes", c_uint64),
    ("taken_bytes", c_uint64),
    ("memory_bytes", c_uint64),
    ("sequences_open", c_uint64),
    ("steps", c_uint64),
    ("commits", c_uint64),
    ("rollbacks", c_uint64),
    ("refusals", c_uint64 * 19),
    ("grows", c_uint64),
    ("resizes", c_uint64),
    ("nonfinite", c_uint64),
    ("saturated", c_uint64),
    ("ranks", c_uint64),
    ("rank", c_uint64),
    ("stage", c_uint64),
    ("uptime_ns", c_uint64),
    ("slots", c_uint64),
    ("chunks", c_uint64),
    ("chunks_booked", c_uint64),
    ("rows", c_uint64),
    ("outcomes", c_uint64 * 6),
    ("vote_refusals", c_uint64 * 19),
    ("votes", c_uint64),
    ("vote_latency", c_uint64 * 24),
    ("vote_latency_ns", c_uint64),
]
KvgLabel._fields_ = [
    ("name", c_char_p),
    ("value", c_char_p),
]
KvgAccountsOptions._fields_ = [
    ("size", c_size_t),
    ("memory_max_bytes", c_uint64),
]
KvgAccountsMark._fields_ = [
    ("id", c_uint64),
    ("serial", c_uint64),
    ("rows", c_uint64),
    ("cuts", c_uint64),
]
KvRecurrentBatch._fields_ = [
    ("view", KvRecurrentView),
    ("places", c_uint32),
    ("rows_max", c_uint32),
    ("slots", POINTER(c_int32)),
    ("rows", POINTER(c_uint32)),
    ("first_token", POINTER(c_uint32)),
    ("x", POINTER(c_float)),
    ("u", POINTER(c_float)),
    ("decay", c_float),
]
KvMove._fields_ = [
    ("target", c_void_p),
    ("source", c_void_p),
    ("bytes", c_uint64),
]
KvCommBoardOptions._fields_ = [
    ("size", c_size_t),
    ("device", c_int),
    ("base", POINTER(KvComm)),
    ("epoch", c_uint32),
    ("release", CFUNCTYPE(None, c_void_p)),
    ("user", c_void_p),
]
KvgCudaOptions._fields_ = [
    ("size", c_size_t),
    ("device", c_int),
    ("handle_bytes", c_size_t),
    ("memory", POINTER(KvMemory)),
    ("plain", c_int),
    ("spare_bytes", c_size_t),
]

STRUCTS = {
    "KvgTracer": KvgTracer,
    "KvEncodeCounts": KvEncodeCounts,
    "KvgPolicy": KvgPolicy,
    "KvgKnob": KvgKnob,
    "KvCachePlan": KvCachePlan,
    "LatentKvPlan": LatentKvPlan,
    "RecurrentPart": RecurrentPart,
    "RecurrentPlan": RecurrentPlan,
    "StatePlan_u": StatePlan_u,
    "StatePlan": StatePlan,
    "ModelPlan": ModelPlan,
    "ModelConfig": ModelConfig,
    "KvSizing": KvSizing,
    "KvRing": KvRing,
    "KvRingAppend": KvRingAppend,
    "TpKvState": TpKvState,
    "TpKvTransaction": TpKvTransaction,
    "TpKvAppendPlan": TpKvAppendPlan,
    "TpKvGrowPlan": TpKvGrowPlan,
    "KvVoteRecord": KvVoteRecord,
    "KvVoteOutcome": KvVoteOutcome,
    "KvVoteControl": KvVoteControl,
    "KvVoteBoard": KvVoteBoard,
    "KvVoteWords": KvVoteWords,
    "KvVoteClass": KvVoteClass,
    "KvVoteArrays": KvVoteArrays,
    "KvVoteWord": KvVoteWord,
    "HeadShard": HeadShard,
    "TpKvRankAllocationShape": TpKvRankAllocationShape,
    "ResidentTpKvCacheRank": ResidentTpKvCacheRank,
    "ResidentTpKvCache": ResidentTpKvCache,
    "KvRange": KvRange,
    "KvRowsIn": KvRowsIn,
    "KvRowsAt": KvRowsAt,
    "KvPatch": KvPatch,
    "KvMemory": KvMemory,
    "KvAvailable": KvAvailable,
    "KvDevOps": KvDevOps,
    "KvDev": KvDev,
    "KvgBootstrap": KvgBootstrap,
    "KvCommOps": KvCommOps,
    "KvComm": KvComm,
    "KvLivenessOps": KvLivenessOps,
    "KvLiveness": KvLiveness,
    "KvMeshOptions": KvMeshOptions,
    "KvRendezvousOptions": KvRendezvousOptions,
    "KvShmOptions": KvShmOptions,
    "KvShmCommOptions": KvShmCommOptions,
    "KvPlane": KvPlane,
    "KvPlaneView": KvPlaneView,
    "KvLatentView": KvLatentView,
    "KvRecurrentPartView": KvRecurrentPartView,
    "KvRecurrentView": KvRecurrentView,
    "KvRecurrentPass": KvRecurrentPass,
    "KvPlaneRef": KvPlaneRef,
    "KvBatchPlane": KvBatchPlane,
    "KvRowsBatch": KvRowsBatch,
    "KvLeaf": KvLeaf,
    "KvDigest": KvDigest,
    "KvGridPlanOptions": KvGridPlanOptions,
    "KvClassPlan": KvClassPlan,
    "KvRankPlan": KvRankPlan,
    "KvGridPlan": KvGridPlan,
    "KvgLedger": KvgLedger,
    "KvgGridOptions": KvgGridOptions,
    "KvgPlaceOptions": KvgPlaceOptions,
    "KvgSequenceInfo": KvgSequenceInfo,
    "KvgRebuildOptions": KvgRebuildOptions,
    "KvgRebuiltSequence": KvgRebuiltSequence,
    "KvgRebuildReport": KvgRebuildReport,
    "KvgJoin": KvgJoin,
    "KvDevRunOps": KvDevRunOps,
    "KvgRows": KvgRows,
    "KvgLatentRows": KvgLatentRows,
    "KvgRecurrentRows": KvgRecurrentRows,
    "KvgCommit": KvgCommit,
    "KvgOutcome": KvgOutcome,
    "KvgCapture": KvgCapture,
    "KvgRunArrays": KvgRunArrays,
    "KvgRunResult": KvgRunResult,
    "KvgStats": KvgStats,
    "KvgLabel": KvgLabel,
    "KvgAccountsOptions": KvgAccountsOptions,
    "KvgAccountsMark": KvgAccountsMark,
    "KvRecurrentBatch": KvRecurrentBatch,
    "KvMove": KvMove,
    "KvCommBoardOptions": KvCommBoardOptions,
    "KvgCudaOptions": KvgCudaOptions,
}

TYPES = {  # all, those that are only pointed to as well
    "KvgTracer": KvgTracer,
    "KvEncodeCounts": KvEncodeCounts,
    "KvgPolicy": KvgPolicy,
    "KvgKnob": KvgKnob,
    "KvCachePlan": KvCachePlan,
    "LatentKvPlan": LatentKvPlan,
    "RecurrentPart": RecurrentPart,
    "RecurrentPlan": RecurrentPlan,
    "StatePlan": StatePlan,
    "StatePlan_u": StatePlan_u,
    "ModelPlan": ModelPlan,
    "ModelConfig": ModelConfig,
    "KvSizing": KvSizing,
    "KvRing": KvRing,
    "KvRingAppend": KvRingAppend,
    "TpKvState": TpKvState,
    "TpKvTransaction": TpKvTransaction,
    "TpKvAppendPlan": TpKvAppendPlan,
    "TpKvGrowPlan": TpKvGrowPlan,
    "KvVoteRecord": KvVoteRecord,
    "KvVoteOutcome": KvVoteOutcome,
    "KvVoteControl": KvVoteControl,
    "KvVoteBoard": KvVoteBoard,
    "KvVoteWords": KvVoteWords,
    "KvVoteClass": KvVoteClass,
    "KvVoteArrays": KvVoteArrays,
    "KvVoteWord": KvVoteWord,
    "HeadShard": HeadShard,
    "TpKvRankAllocationShape": TpKvRankAllocationShape,
    "ResidentTpKvCacheRank": ResidentTpKvCacheRank,
    "ResidentTpKvCache": ResidentTpKvCache,
    "KvRange": KvRange,
    "KvRowsIn": KvRowsIn,
    "KvRowsAt": KvRowsAt,
    "KvPatch": KvPatch,
    "KvMemory": KvMemory,
    "KvAvailable": KvAvailable,
    "KvRowsBatch": KvRowsBatch,
    "KvDevRunOps": KvDevRunOps,
    "KvRecurrentPass": KvRecurrentPass,
    "KvDevOps": KvDevOps,
    "KvDev": KvDev,
    "KvgBootstrap": KvgBootstrap,
    "KvCommOps": KvCommOps,
    "KvComm": KvComm,
    "KvLivenessOps": KvLivenessOps,
    "KvLiveness": KvLiveness,
    "KvInproc": KvInproc,
    "KvMeshOptions": KvMeshOptions,
    "KvRendezvousOptions": KvRendezvousOptions,
    "KvShmOptions": KvShmOptions,
    "KvShmCommOptions": KvShmCommOptions,
    "KvPlane": KvPlane,
    "KvPlaneView": KvPlaneView,
    "KvLatentView": KvLatentView,
    "KvCache": KvCache,
    "LatentPlaneSnapshot": LatentPlaneSnapshot,
    "LatentTailCapture": LatentTailCapture,
    "KvRecurrentPartView": KvRecurrentPartView,
    "KvRecurrentView": KvRecurrentView,
    "KvPlaneRef": KvPlaneRef,
    "KvBatchPlane": KvBatchPlane,
    "DflashTapSink": DflashTapSink,
    "HcTapSink": HcTapSink,
    "KvLeaf": KvLeaf,
    "KvDigest": KvDigest,
    "KvGridPlanOptions": KvGridPlanOptions,
    "KvClassPlan": KvClassPlan,
    "KvRankPlan": KvRankPlan,
    "KvGridPlan": KvGridPlan,
    "KvgLedger": KvgLedger,
    "KvgGrid": KvgGrid,
    "KvgSetup": KvgSetup,
    "KvgGridOptions": KvgGridOptions,
    "KvgPlacement": KvgPlacement,
    "KvgPlaceOptions": KvgPlaceOptions,
    "KvgSequence": KvgSequence,
    "KvgSnapshot": KvgSnapshot,
    "KvgRows": KvgRows,
    "KvgSequenceInfo": KvgSequenceInfo,
    "KvgRebuildOptions": KvgRebuildOptions,
    "KvgRebuiltSequence": KvgRebuiltSequence,
    "KvgRebuildReport": KvgRebuildReport,
    "KvgJoin": KvgJoin,
    "KvgBatch": KvgBatch,
    "KvgStep": KvgStep,
    "KvgLatentRows": KvgLatentRows,
    "KvgRecurrentRows": KvgRecurrentRows,
    "KvgCommit": KvgCommit,
    "KvgOutcome": KvgOutcome,
    "KvgGraph": KvgGraph,
    "KvgCapture": KvgCapture,
    "KvgRunArrays": KvgRunArrays,
    "KvgRunResult": KvgRunResult,
    "KvgStats": KvgStats,
    "KvgLabel": KvgLabel,
    "KvgAccounts": KvgAccounts,
    "KvgAccountsOptions": KvgAccountsOptions,
    "KvgAccountsMark": KvgAccountsMark,
    "KvRecurrentBatch": KvRecurrentBatch,
    "KvMove": KvMove,
    "KvCommBoardOptions": KvCommBoardOptions,
    "KvgCudaOptions": KvgCudaOptions,
    "KvgLogFn": KvgLogFn,
    "KvgStream": KvgStream,
    "KvEvent": KvEvent,
    "KvInprocFilter": KvInprocFilter,
    "KvPoolKeyFn": KvPoolKeyFn,
    "KvgRecurrentFillFn": KvgRecurrentFillFn,
}

INITIALS = {  # the _INIT macros: what is not zero, beside size
    "KVG_BOOTSTRAP_INIT": ("KvgBootstrap", {'ranks': 1}),
    "KVG_MESH_OPTIONS_INIT": ("KvMeshOptions", {}),
    "KVG_RENDEZVOUS_OPTIONS_INIT": ("KvRendezvousOptions", {'ranks': 1, 'listen_fd': -1}),
    "KVG_SHM_OPTIONS_INIT": ("KvShmOptions", {'fd': -1, 'ranks': 1}),
    "KVG_SHM_COMM_OPTIONS_INIT": ("KvShmCommOptions", {}),
    "KVG_GRID_PLAN_OPTIONS_INIT": ("KvGridPlanOptions", {'tp': 1, 'pp': 1}),
    "KVG_GRID_OPTIONS_INIT": ("KvgGridOptions", {'tp': 1, 'pp': 1}),
    "KVG_PLACE_OPTIONS_INIT": ("KvgPlaceOptions", {}),
    "KVG_REBUILD_OPTIONS_INIT": ("KvgRebuildOptions", {}),
    "KVG_ROWS_INIT": ("KvgRows", {'dtype': 1}),
    "KVG_LATENT_ROWS_INIT": ("KvgLatentRows", {'dtype': 1}),
    "KVG_RECURRENT_ROWS_INIT": ("KvgRecurrentRows", {'decay': 1.0}),
    "KVG_COMMIT_INIT": ("KvgCommit", {}),
    "KVG_CAPTURE_INIT": ("KvgCapture", {}),
    "KVG_ACCOUNTS_OPTIONS_INIT": ("KvgAccountsOptions", {}),
    "KVG_COMM_BOARD_OPTIONS_INIT": ("KvCommBoardOptions", {}),
    "KVG_CUDA_OPTIONS_INIT": ("KvgCudaOptions", {}),
}

FUNCTIONS = {  # result, arguments
    "kvg_status_name": (c_char_p, [c_int]),
    "kvg_last_error": (c_char_p, []),
    "kvg_log_set": (None, [KvgLogFn, c_void_p]),
    "kvg_log": (None, [c_int, c_char_p]),
    "kvg_tracer_set": (None, [POINTER(KvgTracer)]),
    "kvg_range_name": (c_char_p, [c_int]),
    "kvg_format_name": (c_char_p, [c_int]),
    "kvg_format_parse": (c_int, [c_char_p, POINTER(c_int)]),
    "kvg_format_block_elements": (c_uint32, [c_int]),
    "kvg_format_block_bytes": (c_uint32, [c_int]),
    "kvg_format_bytes_per_32": (c_uint32, [c_int]),
    "kvg_format_is_lossy": (c_int, [c_int]),
    "kvg_format_legal_k": (c_int, [c_int]),
    "kvg_format_legal_v": (c_int, [c_int]),
    "kvg_format_row_bytes": (c_int, [c_int, c_uint64, POINTER(c_uint64)]),
    "kvg_encode_f32": (None, [c_int, POINTER(c_float), c_size_t, c_void_p, POINTER(KvEncodeCounts)]),
    "kvg_encode_f32_ref": (None, [c_int, POINTER(c_float), c_size_t, c_void_p, POINTER(KvEncodeCounts)]),
    "kvg_encode": (None, [c_int, c_int, c_void_p, c_size_t, c_void_p, POINTER(KvEncodeCounts)]),
    "kvg_decode_f32": (None, [c_int, c_void_p, c_size_t, POINTER(c_float)]),
    "kvg_policy_default": (None, [POINTER(KvgPolicy)]),
    "kvg_policy_from_env": (c_int, [POINTER(KvgPolicy)]),
    "kvg_policy_process": (c_int, [POINTER(POINTER(KvgPolicy))]),
    "kvg_policy_swa_ring_on": (c_int, [POINTER(KvgPolicy)]),
    "kvg_policy_kv_fp8_on": (c_int, [POINTER(KvgPolicy)]),
    "kvg_kv_cache_formats": (None, [POINTER(c_int), POINTER(c_int)]),
    "kvg_kv_blk_bytes": (None, [POINTER(c_uint32), POINTER(c_uint32)]),
    "kvg_gkv_on": (c_int, []),
    "kvg_wkv_on": (c_int, []),
    "kvg_kv_fp8_on": (c_int, []),
    "kvg_kv_fp8_force_set": (None, [c_int]),
    "kvg_swa_ring_on": (c_int, []),
    "kvg_set_swa_ring_default": (None, [c_int]),
    "kvg_knob_count": (c_int, []),
    "kvg_knob_get": (c_int, [c_int, POINTER(KvgKnob)]),
    "kvg_model_config_load": (c_int, [c_char_p, POINTER(ModelConfig)]),
    "kvg_model_config_parse_json": (c_int, [c_char_p, c_size_t, c_char_p, POINTER(ModelConfig)]),
    "kvg_model_config_parse_gguf": (c_int, [c_void_p, c_size_t, c_char_p, POINTER(ModelConfig)]),
    "kvg_model_config_free": (None, [POINTER(ModelConfig)]),
    "kvg_state_kind_name": (c_char_p, [c_int]),
    "kvg_layer_formats": (c_int, [POINTER(StatePlan), POINTER(KvgPolicy), c_int, c_int, POINTER(c_int), POINTER(c_int)]),
    "kvg_sizing_default": (c_int, [POINTER(KvSizing)]),
    "kvg_cache_bytes_per_token": (c_int, [POINTER(ModelConfig), POINTER(c_uint64)]),
    "kvg_cache_bytes_per_token_for_layers": (c_int, [POINTER(ModelConfig), c_uint32, c_uint32, POINTER(c_uint64)]),
    "kvg_cache_bytes_per_token_for_plan": (c_int, [POINTER(ModelConfig), POINTER(ModelPlan), c_uint32, c_uint32, POINTER(c_uint64)]),
    "kvg_latent_kv_bytes_per_token_for_plan": (c_int, [POINTER(ModelConfig), POINTER(ModelPlan), c_uint32, c_uint32, POINTER(c_uint64)]),
    "kvg_cache_ring_bytes_per_token": (c_int, [POINTER(ModelConfig), POINTER(c_uint64)]),
    "kvg_cache_ring_bytes_per_token_for_layers": (c_int, [POINTER(ModelConfig), c_uint32, c_uint32, POINTER(c_uint64)]),
    "kvg_cache_ring_bytes_per_token_for_plan": (c_int, [POINTER(ModelConfig), POINTER(ModelPlan), c_uint32, c_uint32, POINTER(c_uint64)]),
    "kvg_cache_ring_row_cap": (c_int, [POINTER(ModelConfig), POINTER(c_uint64)]),
    "kvg_cache_ring_row_cap_for_plan": (c_int, [POINTER(ModelConfig), POINTER(ModelPlan), POINTER(c_uint64)]),
    "kvg_plan_bytes_per_token": (c_int, [POINTER(KvSizing), POINTER(ModelPlan), c_uint32, c_uint32, POINTER(c_uint64)]),
    "kvg_plan_latent_bytes_per_token": (c_int, [POINTER(KvSizing), POINTER(ModelPlan), c_uint32, c_uint32, POINTER(c_uint64)]),
    "kvg_plan_ring_bytes_per_token": (c_int, [POINTER(KvSizing), POINTER(ModelPlan), c_uint32, c_uint32, POINTER(c_uint64)]),
    "kvg_plan_ring_row_cap": (c_int, [POINTER(KvSizing), POINTER(ModelPlan), POINTER(c_uint64)]),
    "kvg_plan_fixed_bytes": (c_int, [POINTER(KvSizing), POINTER(ModelPlan), c_uint32, c_uint32, c_uint64, c_uint32, POINTER(c_uint64)]),
    "kvg_plan_pool_key_bytes": (c_int, [POINTER(KvSizing), POINTER(ModelPlan), c_uint32, c_uint32, c_uint64, POINTER(c_uint64)]),
    "kvg_swa_ring_rows": (c_uint64, [c_uint64, c_uint64]),
    "kvg_swa_ring_rows_chunk": (c_uint64, [c_uint64, c_uint64, c_uint64]),
    "kvg_swa_retain_from": (c_uint64, [c_uint64, c_uint64, c_uint64]),
    "kvg_view_start": (c_uint64, [c_uint64, c_uint64]),
    "kvg_prime_chunk_tokens": (c_uint64, [c_uint64, c_uint64, c_int]),
    "kvg_kv_ring_init": (c_int, [POINTER(KvRing), c_uint64, c_uint64]),
    "kvg_kv_ring_append_plan": (c_int, [POINTER(KvRing), c_uint64, c_uint64, c_uint64, POINTER(KvRingAppend)]),
    "kvg_kv_ring_apply_rebase": (None, [POINTER(KvRing), POINTER(KvRingAppend)]),
    "kvg_kv_ring_physical_range": (c_int, [POINTER(KvRing), c_uint64, c_uint64, POINTER(c_uint64), POINTER(c_uint64)]),
    "kvg_kv_ring_can_rewind_to": (c_int, [POINTER(KvRing), c_uint64]),
    "kvg_kv_ring_restore_plan": (c_int, [POINTER(KvRing), c_uint64, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_uint64)]),
    "kvg_index_ring_rows_for": (c_uint64, [c_int64, c_uint64]),
    "kvg_index_ring_rows": (c_uint64, [c_uint64]),
    "kvg_index_ring_default_rows": (c_uint64, [c_uint64]),
    "kvg_index_ring_round": (c_int, [c_uint64, c_uint64, POINTER(c_uint64)]),
    "kvg_index_plane_physical_row": (c_uint64, [c_uint64, c_uint64, c_uint64]),
    "kvg_index_ring_take": (c_int, [c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, POINTER(c_uint64)]),
    "kvg_tp_kv_init": (c_int, [POINTER(TpKvState), c_uint64, c_uint64, c_uint32, c_uint32]),
    "kvg_tp_kv_fresh": (c_int, [POINTER(TpKvState)]),
    "kvg_tp_kv_begin": (c_int, [POINTER(TpKvState), POINTER(TpKvTransaction)]),
    "kvg_tp_kv_prepare_append": (c_int, [POINTER(TpKvState), POINTER(TpKvTransaction), c_uint64, POINTER(TpKvAppendPlan)]),
    "kvg_tp_kv_publish_append_rebase": (c_int, [POINTER(TpKvState), POINTER(TpKvAppendPlan)]),
    "kvg_tp_kv_publish_append_plan": (c_int, [POINTER(TpKvState), POINTER(TpKvAppendPlan)]),
    "kvg_tp_kv_peek_append_ring": (c_int, [POINTER(TpKvState), c_uint64, POINTER(c_uint64), POINTER(c_int)]),
    "kvg_tp_kv_commit_target": (c_int, [POINTER(TpKvState), POINTER(TpKvTransaction), c_uint64, POINTER(c_uint64)]),
    "kvg_tp_kv_publish_finalize": (c_int, [POINTER(TpKvState), POINTER(TpKvTransaction), c_uint64]),
    "kvg_tp_kv_rewind_to": (c_int, [POINTER(TpKvState), c_uint64]),
    "kvg_tp_kv_publish_hydration": (c_int, [POINTER(TpKvState), c_uint64, c_uint64]),
    "kvg_tp_kv_prepare_grow": (c_int, [POINTER(TpKvState), c_uint64, c_uint64, c_uint64, c_uint64, POINTER(TpKvGrowPlan)]),
    "kvg_tp_kv_publish_grow": (c_int, [POINTER(TpKvState), POINTER(TpKvGrowPlan), POINTER(TpKvState)]),
    "kvg_tp_kv_extend": (c_int, [POINTER(TpKvState), c_uint64]),
    "kvg_tp_kv_physical_range": (c_int, [POINTER(TpKvState), c_uint64, c_uint64, POINTER(c_uint64), POINTER(c_uint64)]),
    "kvg_vote_record_bytes": (c_size_t, [c_uint32]),
    "kvg_vote_accepted_pack": (c_int, [c_uint64, c_uint64, POINTER(c_uint16)]),
    "kvg_vote_accepted_unpack": (c_int, [c_uint16, c_uint64, POINTER(c_uint64)]),
    "kvg_vote_decide": (None, [POINTER(POINTER(KvVoteRecord)), c_uint32, c_uint32, POINTER(KvVoteOutcome)]),
    "kvg_vote_outcome_status": (c_int, [POINTER(KvVoteOutcome), c_uint64, POINTER(POINTER(KvVoteRecord))]),
    "kvg_vote_field_name": (c_char_p, [c_int]),
    "kvg_vote_kind_name": (c_char_p, [c_int]),
    "kvg_vote_keep": (c_uint32, [c_uint64]),
    "kvg_vote_slots": (c_uint32, [c_uint32]),
    "kvg_vote_board_bytes": (c_size_t, [POINTER(KvVoteBoard)]),
    "kvg_vote_ahead_bytes": (c_size_t, [c_uint32]),
    "kvg_vote_slot_bytes": (c_size_t, [POINTER(KvVoteBoard)]),
    "kvg_vote_unpack": (c_int, [POINTER(KvVoteBoard), c_void_p, c_uint64, c_uint32, c_uint32, POINTER(KvVoteRecord)]),
    "kvg_vote_present": (c_int, [POINTER(KvVoteBoard), c_void_p, c_uint64, c_uint32]),
    "kvg_vote_allow": (None, [POINTER(KvVoteControl), c_uint64]),
    "kvg_vote_forward": (None, [POINTER(KvVoteControl)]),
    "kvg_vote_stop": (None, [POINTER(KvVoteControl), c_int]),
    "kvg_vote_word": (KvVoteWord, [c_uint64, c_uint64]),
    "kvg_vote_form_ref": (None, [POINTER(KvVoteBoard), POINTER(KvVoteArrays), POINTER(KvVoteRecord)]),
    "kvg_vote_post_ref": (c_int, [POINTER(KvVoteBoard), POINTER(KvVoteArrays)]),
    "kvg_vote_decide_ref": (c_int, [POINTER(KvVoteBoard), POINTER(KvVoteArrays)]),
    "kvg_head_shard": (c_int, [c_uint32, c_uint32, c_uint32, POINTER(HeadShard)]),
    "kvg_tp_sizes_that_work": (c_size_t, [c_uint32, c_uint32, c_uint32, POINTER(c_uint32), c_size_t]),
    "kvg_tp_check_heads": (c_int, [c_uint32, c_uint32, c_uint32]),
    "kvg_tp_kv_rank_allocation_shape": (c_int, [c_uint64, c_uint64, c_uint64, c_int, c_int, POINTER(TpKvRankAllocationShape)]),
    "kvg_tp_kv_shape_bytes_per_token": (c_uint64, [POINTER(TpKvRankAllocationShape)]),
    "kvg_tp_kv_shape_allocation_bytes": (c_int, [POINTER(TpKvRankAllocationShape), c_uint64, POINTER(c_uint64)]),
    "kvg_resident_tp_kv_init": (c_int, [POINTER(ResidentTpKvCache), POINTER(ResidentTpKvCacheRank), c_uint32, c_uint32, c_uint64, c_uint64, c_uint32, c_uint32]),
    "kvg_resident_tp_kv_begin": (c_int, [POINTER(ResidentTpKvCache), POINTER(TpKvTransaction)]),
    "kvg_resident_tp_kv_prepare_append": (c_int, [POINTER(ResidentTpKvCache), POINTER(TpKvTransaction), c_uint64, POINTER(TpKvAppendPlan)]),
    "kvg_resident_tp_kv_publish_append_rebase": (c_int, [POINTER(ResidentTpKvCache), POINTER(TpKvAppendPlan)]),
    "kvg_resident_tp_kv_publish_append_plan": (c_int, [POINTER(ResidentTpKvCache), POINTER(TpKvAppendPlan)]),
    "kvg_resident_tp_kv_peek_append_ring": (c_int, [POINTER(ResidentTpKvCache), c_uint64, POINTER(c_uint64), POINTER(c_int)]),
    "kvg_resident_tp_kv_commit_target": (c_int, [POINTER(ResidentTpKvCache), POINTER(TpKvTransaction), c_uint64, POINTER(c_uint64)]),
    "kvg_resident_tp_kv_publish_finalize": (c_int, [POINTER(ResidentTpKvCache), POINTER(TpKvTransaction), c_uint64]),
    "kvg_resident_tp_kv_rewind_to": (c_int, [POINTER(ResidentTpKvCache), c_uint64]),
    "kvg_resident_tp_kv_publish_hydration": (c_int, [POINTER(ResidentTpKvCache), c_uint64, c_uint64]),
    "kvg_resident_tp_kv_physical_range": (c_int, [POINTER(ResidentTpKvCache), c_uint64, c_uint64, POINTER(c_uint64), POINTER(c_uint64)]),
    "kvg_resident_tp_kv_prepare_grow": (c_int, [POINTER(ResidentTpKvCache), c_uint64, c_uint64, POINTER(TpKvGrowPlan)]),
    "kvg_resident_tp_kv_grow_layer_bytes": (c_int, [POINTER(ResidentTpKvCache), POINTER(TpKvGrowPlan), c_uint32, c_uint32, POINTER(c_uint64), POINTER(c_uint64)]),
    "kvg_resident_tp_kv_publish_grow": (c_int, [POINTER(ResidentTpKvCache), POINTER(TpKvGrowPlan), POINTER(ResidentTpKvCache)]),
    "kvg_resident_tp_kv_allocation_bytes": (c_int, [POINTER(ResidentTpKvCache), c_uint32, POINTER(c_uint64)]),
    "kvg_partition": (c_int, [POINTER(c_uint64), c_uint32, c_uint32, c_uint64, c_uint64, POINTER(c_uint64), POINTER(c_uint32), c_uint32, POINTER(c_uint32), POINTER(c_uint64)]),
    "kvg_fence_stage": (c_uint32, [POINTER(c_uint32), c_uint32, c_uint32]),
    "kvg_fence_check": (c_int, [POINTER(c_uint32), c_uint32, c_uint32]),
    "kvg_dev_host": (c_int, [POINTER(KvDev)]),
    "kvg_dev_host_plain": (c_int, [POINTER(KvDev)]),
    "kvg_dev_host_memory": (c_int, [POINTER(KvMemory), POINTER(KvDev)]),
    "kvg_dev_close": (None, [POINTER(KvDev)]),
    "kvg_dev_copy_range_into": (c_int, [POINTER(KvDev), c_void_p, c_size_t, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, KvgStream]),
    "kvg_dev_clone": (c_int, [POINTER(KvDev), c_void_p, c_size_t, KvgStream, POINTER(c_void_p)]),
    "kvg_comm_self": (c_int, [POINTER(KvComm), POINTER(KvLiveness)]),
    "kvg_inproc_create": (c_int, [c_int, POINTER(POINTER(KvInproc))]),
    "kvg_inproc_destroy": (None, [POINTER(KvInproc)]),
    "kvg_inproc_attach": (c_int, [POINTER(KvInproc), c_int, POINTER(KvComm), POINTER(KvLiveness)]),
    "kvg_inproc_set_filter": (None, [POINTER(KvInproc), KvInprocFilter, c_void_p]),
    "kvg_inproc_kill": (None, [POINTER(KvInproc), c_int]),
    "kvg_inproc_freeze": (None, [POINTER(KvInproc), c_int, c_int]),
    "kvg_inproc_now_ns": (c_uint64, [POINTER(KvInproc)]),
    "kvg_inproc_advance_ns": (None, [POINTER(KvInproc), c_uint64]),
    "kvg_mesh_create": (c_int, [POINTER(KvgBootstrap), POINTER(KvMeshOptions), POINTER(KvComm), POINTER(KvLiveness)]),
    "kvg_rendezvous_create": (c_int, [POINTER(KvRendezvousOptions), POINTER(KvgBootstrap)]),
    "kvg_rendezvous_destroy": (None, [POINTER(KvgBootstrap)]),
    "kvg_shm_memory": (c_int, [c_int, POINTER(c_int)]),
    "kvg_shm_bootstrap_create": (c_int, [POINTER(KvShmOptions), POINTER(KvgBootstrap)]),
    "kvg_shm_bootstrap_destroy": (None, [POINTER(KvgBootstrap)]),
    "kvg_comm_shm_create": (c_int, [POINTER(KvgBootstrap), POINTER(KvShmCommOptions), POINTER(KvComm), POINTER(KvLiveness)]),
    "kvg_latent_snapshot_plane": (c_int, [POINTER(KvCache), c_uint32, KvgStream, POINTER(POINTER(LatentPlaneSnapshot))]),
    "kvg_latent_snapshot_bytes": (c_uint64, [POINTER(LatentPlaneSnapshot)]),
    "kvg_latent_snapshot_len": (c_uint64, [POINTER(LatentPlaneSnapshot)]),
    "kvg_latent_validate_restore": (c_int, [POINTER(LatentPlaneSnapshot), POINTER(KvCache), c_uint32]),
    "kvg_latent_restore_plane": (c_int, [POINTER(LatentPlaneSnapshot), POINTER(KvCache), c_uint32, KvgStream]),
    "kvg_latent_snapshot_free": (None, [POINTER(LatentPlaneSnapshot)]),
    "kvg_latent_snapshot_tail": (c_int, [POINTER(KvCache), c_uint32, KvgStream, POINTER(POINTER(LatentTailCapture))]),
    "kvg_latent_snapshot_plane_at": (c_int, [POINTER(KvCache), c_uint32, POINTER(LatentTailCapture), KvgStream, POINTER(POINTER(LatentPlaneSnapshot))]),
    "kvg_latent_tail_free": (None, [POINTER(LatentTailCapture)]),
    "kvg_recurrent_token": (None, [POINTER(c_float), POINTER(c_float), POINTER(c_float), POINTER(c_float), c_float, c_uint64, c_uint32, c_uint64, POINTER(c_float), POINTER(c_float)]),
    "kvg_recurrent_pass": (None, [POINTER(KvRecurrentPass)]),
    "kvg_dflash_tap_new": (c_int, [POINTER(KvDev), POINTER(c_uint32), c_uint32, c_uint32, c_uint32, c_uint32, c_uint64, c_int, POINTER(POINTER(DflashTapSink))]),
    "kvg_dflash_tap_free": (None, [POINTER(DflashTapSink)]),
    "kvg_dflash_tap_arm": (c_int, [POINTER(DflashTapSink), c_uint64]),
    "kvg_dflash_tap_disarm": (None, [POINTER(DflashTapSink)]),
    "kvg_dflash_tap_write": (c_int, [POINTER(DflashTapSink), c_uint32, c_uint64, c_uint64, c_void_p, c_int64, KvgStream]),
    "kvg_dflash_tap_buffer": (c_void_p, [POINTER(DflashTapSink)]),
    "kvg_dflash_tap_written": (c_int, [POINTER(DflashTapSink), c_uint64, c_uint32]),
    "kvg_hc_tap_new": (c_int, [POINTER(KvDev), POINTER(c_uint32), c_uint32, c_uint32, c_uint32, c_uint32, c_uint32, c_uint64, c_uint64, c_int, POINTER(POINTER(HcTapSink))]),
    "kvg_hc_tap_free": (None, [POINTER(HcTapSink)]),
    "kvg_hc_tap_arm": (c_int, [POINTER(HcTapSink), c_uint64]),
    "kvg_hc_tap_disarm": (None, [POINTER(HcTapSink)]),
    "kvg_hc_tap_write": (c_int, [POINTER(HcTapSink), c_uint32, c_uint64, c_uint64, POINTER(c_float), KvgStream]),
    "kvg_hc_tap_drain": (c_int, [POINTER(HcTapSink), KvgStream]),
    "kvg_hc_tap_rows": (POINTER(c_float), [POINTER(HcTapSink)]),
    "kvg_dflash_tap_drop": (None, [POINTER(DflashTapSink)]),
    "kvg_hc_tap_drop": (None, [POINTER(HcTapSink)]),
    "kvg_digest_combine": (c_int, [POINTER(KvLeaf), c_size_t, c_uint64, POINTER(KvDigest)]),
    "kvg_digest_hex": (None, [POINTER(KvDigest), c_char_p]),
    "kvg_grid_plan": (c_int, [POINTER(ModelConfig), POINTER(KvGridPlanOptions), POINTER(KvGridPlan)]),
    "kvg_grid_plan_free": (None, [POINTER(KvGridPlan)]),
    "kvg_class_plan_units": (c_uint32, [POINTER(KvClassPlan), c_uint64]),
    "kvg_ledger_init": (c_int, [POINTER(KvGridPlan), POINTER(KvgLedger)]),
    "kvg_ledger_from_json": (c_int, [c_char_p, c_size_t, POINTER(KvgLedger)]),
    "kvg_ledger_check": (c_int, [POINTER(KvgLedger), c_uint64]),
    "kvg_ledger_admit": (c_int, [POINTER(KvgLedger), c_uint64]),
    "kvg_ledger_grow": (c_int, [POINTER(KvgLedger), c_uint64, c_uint64]),
    "kvg_ledger_close": (None, [POINTER(KvgLedger), c_uint64]),
    "kvg_grid_create": (c_int, [POINTER(KvgBootstrap), POINTER(KvgGridOptions), POINTER(POINTER(KvgGrid))]),
    "kvg_grid_create_inproc": (c_int, [POINTER(KvInproc), c_int, POINTER(KvgGridOptions), POINTER(POINTER(KvgGrid))]),
    "kvg_grid_destroy": (None, [POINTER(KvgGrid)]),
    "kvg_grid_rank": (c_int, [POINTER(KvgGrid)]),
    "kvg_grid_ranks": (c_int, [POINTER(KvgGrid)]),
    "kvg_grid_tp": (c_uint32, [POINTER(KvgGrid)]),
    "kvg_grid_pp": (c_uint32, [POINTER(KvgGrid)]),
    "kvg_grid_stage": (c_uint32, [POINTER(KvgGrid)]),
    "kvg_grid_tp_rank": (c_uint32, [POINTER(KvgGrid)]),
    "kvg_grid_epoch": (c_uint32, [POINTER(KvgGrid)]),
    "kvg_grid_progress": (c_int, [POINTER(KvgGrid)]),
    "kvg_grid_state": (c_int, [POINTER(KvgGrid)]),
    "kvg_grid_settle": (c_int, [POINTER(KvgGrid), POINTER(c_int), c_int]),
    "kvg_grid_settle_start": (c_int, [POINTER(KvgGrid), POINTER(c_int), c_int, POINTER(POINTER(KvgSetup))]),
    "kvg_setup_test": (c_int, [POINTER(KvgSetup), POINTER(c_int)]),
    "kvg_setup_wait": (c_int, [POINTER(KvgSetup)]),
    "kvg_setup_free": (None, [POINTER(KvgSetup)]),
    "kvg_place": (c_int, [POINTER(KvgGrid), POINTER(ModelConfig), POINTER(KvgPlaceOptions), POINTER(POINTER(KvgPlacement))]),
    "kvg_place_start": (c_int, [POINTER(KvgGrid), POINTER(ModelConfig), POINTER(KvgPlaceOptions), POINTER(POINTER(KvgPlacement)), POINTER(POINTER(KvgSetup))]),
    "kvg_placement_destroy": (None, [POINTER(KvgPlacement)]),
    "kvg_placement_plan": (POINTER(KvGridPlan), [POINTER(KvgPlacement)]),
    "kvg_placement_layers": (None, [POINTER(KvgPlacement), POINTER(c_uint32), POINTER(c_uint32)]),
    "kvg_placement_view": (POINTER(KvPlaneView), [POINTER(KvgPlacement), c_uint32]),
    "kvg_placement_flush": (c_int, [POINTER(KvgPlacement), KvgStream]),
    "kvg_placement_ledger": (None, [POINTER(KvgPlacement), POINTER(KvgLedger)]),
    "kvg_placement_resize": (c_int, [POINTER(KvgPlacement), c_uint64]),
    "kvg_placement_resize_start": (c_int, [POINTER(KvgPlacement), c_uint64, POINTER(POINTER(KvgSetup))]),
    "kvg_placement_prepare": (c_int, [POINTER(KvgPlacement), c_uint64]),
    "kvg_placement_sleep": (c_int, [POINTER(KvgPlacement)]),
    "kvg_placement_sleep_start": (c_int, [POINTER(KvgPlacement), POINTER(POINTER(KvgSetup))]),
    "kvg_placement_wake": (c_int, [POINTER(KvgPlacement)]),
    "kvg_placement_wake_start": (c_int, [POINTER(KvgPlacement), POINTER(POINTER(KvgSetup))]),
    "kvg_placement_asleep": (c_int, [POINTER(KvgPlacement)]),
    "kvg_layer_counts": (c_int, [POINTER(KvgPlacement), c_uint32, POINTER(KvEncodeCounts)]),
    "kvg_sequence_open": (c_int, [POINTER(KvgPlacement), c_uint64, c_uint64, POINTER(POINTER(KvgSequence))]),
    "kvg_sequence_close": (c_int, [POINTER(KvgSequence), KvgStream]),
    "kvg_sequence_book": (c_int, [POINTER(KvgSequence), c_uint64]),
    "kvg_sequence_rewind": (c_int, [POINTER(KvgSequence), c_uint64]),
    "kvg_sequence_trim": (c_int, [POINTER(KvgSequence)]),
    "kvg_sequence_fork": (c_int, [POINTER(KvgSequence), c_uint64, c_uint64, POINTER(POINTER(KvgSequence))]),
    "kvg_sequence_snapshot": (c_int, [POINTER(KvgSequence), POINTER(POINTER(KvgSnapshot))]),
    "kvg_sequence_snapshot_into": (c_int, [POINTER(KvgSequence), POINTER(KvgSnapshot)]),
    "kvg_snapshot_free": (None, [POINTER(KvgSnapshot)]),
    "kvg_sequence_can_rollback": (c_int, [POINTER(KvgSequence), POINTER(KvgSnapshot), c_uint64]),
    "kvg_sequence_rollback": (c_int, [POINTER(KvgSequence), POINTER(KvgSnapshot), c_uint64]),
    "kvg_sequence_restore": (c_int, [POINTER(KvgSequence), c_uint64, c_uint64]),
    "kvg_sequence_fill_kv": (c_int, [POINTER(KvgSequence), c_uint32, c_uint64, c_uint32, POINTER(KvgRows), KvgStream]),
    "kvg_sequence_taint": (c_int, [POINTER(KvgSequence)]),
    "kvg_sequence_attach_taps": (c_int, [POINTER(KvgSequence), POINTER(DflashTapSink), POINTER(HcTapSink)]),
    "kvg_sequence_park_logits": (c_int, [POINTER(KvgSequence), POINTER(c_float), c_uint32]),
    "kvg_sequence_parked_logits": (POINTER(c_float), [POINTER(KvgSequence), POINTER(c_uint32)]),
    "kvg_sequence_info": (c_int, [POINTER(KvgSequence), POINTER(KvgSequenceInfo)]),
    "kvg_sequence_read": (c_int, [POINTER(KvgSequence), c_uint32, c_uint32, c_uint64, c_uint32, POINTER(c_float)]),
    "kvg_sequence_row": (POINTER(c_uint8), [POINTER(KvgSequence), c_uint32, c_uint32, c_uint32, c_uint64]),
    "kvg_sequence_cache": (POINTER(KvCache), [POINTER(KvgSequence)]),
    "kvg_sequence_digest": (c_int, [POINTER(KvgSequence), POINTER(KvDigest)]),
    "kvg_sequence_digest_start": (c_int, [POINTER(KvgSequence), POINTER(KvDigest), POINTER(POINTER(KvgSetup))]),
    "kvg_sequence_leaves": (c_int, [POINTER(KvgSequence), POINTER(KvLeaf), c_size_t, POINTER(c_size_t)]),
    "kvg_grid_rebuild": (c_int, [POINTER(KvgGrid), POINTER(KvgBootstrap), POINTER(c_int), c_int, POINTER(KvgRebuildOptions), POINTER(POINTER(KvgRebuildReport))]),
    "kvg_grid_rebuild_start": (c_int, [POINTER(KvgGrid), POINTER(c_int), c_int, POINTER(KvgRebuildOptions), POINTER(POINTER(KvgRebuildReport)), POINTER(POINTER(KvgSetup))]),
    "kvg_rebuild_report_free": (None, [POINTER(KvgRebuildReport)]),
    "kvg_grid_join": (c_int, [POINTER(KvgBootstrap), POINTER(KvgGridOptions), POINTER(KvgJoin), c_uint32, POINTER(POINTER(KvgGrid)), POINTER(POINTER(KvgRebuildReport))]),
    "kvg_grid_join_start": (c_int, [c_int, c_int, POINTER(KvgGridOptions), POINTER(KvgJoin), c_uint32, POINTER(POINTER(KvgGrid)), POINTER(POINTER(KvgRebuildReport)), POINTER(POINTER(KvgSetup))]),
    "kvg_batch_create": (c_int, [POINTER(KvgPlacement), c_uint32, POINTER(POINTER(KvgBatch))]),
    "kvg_batch_destroy": (None, [POINTER(KvgBatch)]),
    "kvg_batch_set": (c_int, [POINTER(KvgBatch), c_uint32, POINTER(KvgSequence)]),
    "kvg_batch_slots": (POINTER(c_int32), [POINTER(KvgBatch)]),
    "kvg_plane_view": (POINTER(KvPlaneView), [POINTER(KvgBatch), c_uint32]),
    "kvg_latent_view": (POINTER(KvLatentView), [POINTER(KvgBatch), c_uint32]),
    "kvg_recurrent_view": (POINTER(KvRecurrentView), [POINTER(KvgBatch), c_uint32]),
    "kvg_step_begin": (c_int, [POINTER(KvgBatch), POINTER(c_uint32), POINTER(POINTER(KvgStep))]),
    "kvg_step_begin_joint": (c_int, [POINTER(POINTER(KvgBatch)), POINTER(POINTER(c_uint32)), c_uint32, POINTER(POINTER(KvgStep))]),
    "kvg_step_extend": (c_int, [POINTER(KvgStep), POINTER(c_uint32)]),
    "kvg_step_rows": (POINTER(c_uint32), [POINTER(KvgStep)]),
    "kvg_step_first_rows": (POINTER(c_uint64), [POINTER(KvgStep)]),
    "kvg_step_refusal": (c_int, [POINTER(KvgStep), c_uint32]),
    "kvg_step_local": (c_int, [POINTER(KvgStep)]),
    "kvg_write_kv": (c_int, [POINTER(KvgBatch), c_uint32, POINTER(KvgRows), KvgStream]),
    "kvg_write_latent": (c_int, [POINTER(KvgBatch), c_uint32, POINTER(KvgLatentRows), KvgStream]),
    "kvg_recurrent_update": (c_int, [POINTER(KvgBatch), c_uint32, POINTER(KvgRecurrentRows), KvgStream]),
    "kvg_step_post": (c_int, [POINTER(KvgStep), POINTER(KvgCommit)]),
    "kvg_step_test": (c_int, [POINTER(KvgStep), POINTER(c_int), POINTER(KvgOutcome)]),
    "kvg_step_wait": (c_int, [POINTER(KvgStep), POINTER(KvgOutcome)]),
    "kvg_step_number": (c_uint64, [POINTER(KvgStep)]),
    "kvg_grid_vote_on_device": (c_int, [POINTER(KvgGrid), POINTER(KvVoteBoard), POINTER(KvVoteControl)]),
    "kvg_grid_record_sequences": (c_uint32, [POINTER(KvgGrid)]),
    "kvg_batch_capture_begin": (c_int, [POINTER(KvgBatch), POINTER(KvgCapture), KvgStream]),
    "kvg_batch_capture_end": (c_int, [POINTER(KvgBatch), POINTER(POINTER(KvgGraph))]),
    "kvg_graph_free": (None, [POINTER(KvgGraph)]),
    "kvg_run_arrays": (c_int, [POINTER(KvgBatch), POINTER(KvgRunArrays)]),
    "kvg_run_begin": (c_int, [POINTER(KvgGraph), c_uint32, POINTER(c_uint32), KvgStream]),
    "kvg_run_begin_joint": (c_int, [POINTER(POINTER(KvgGraph)), POINTER(POINTER(c_uint32)), c_uint32, c_uint32, KvgStream]),
    "kvg_run_refusal": (c_int, [POINTER(KvgGraph), c_uint32]),
    "kvg_graph_launch": (c_int, [POINTER(KvgGraph), KvgStream]),
    "kvg_run_test": (c_int, [POINTER(KvgGraph), POINTER(c_uint64), POINTER(c_int)]),
    "kvg_run_end": (c_int, [POINTER(KvgGraph), KvgStream, POINTER(KvgRunResult)]),
    "kvg_run_result": (c_int, [POINTER(KvgGraph), POINTER(KvgRunResult)]),
    "kvg_stats": (c_int, [POINTER(KvgPlacement), POINTER(KvgStats)]),
    "kvg_stats_quick": (c_int, [POINTER(KvgPlacement), POINTER(KvgStats)]),
    "kvg_stats_over_grid": (c_int, [POINTER(KvgPlacement), POINTER(KvgStats), POINTER(KvgStats)]),
    "kvg_stats_over_grid_start": (c_int, [POINTER(KvgPlacement), POINTER(KvgStats), POINTER(KvgStats), POINTER(POINTER(KvgSetup))]),
    "kvg_stats_total": (c_int, [POINTER(KvgStats), c_uint32, POINTER(KvgStats)]),
    "kvg_latency_bucket": (c_uint32, [c_uint64]),
    "kvg_latency_bucket_us": (c_uint64, [c_uint32]),
    "kvg_stats_prometheus": (c_int, [POINTER(KvgStats), c_uint32, POINTER(KvgLabel), c_uint32, c_char_p, c_size_t, POINTER(c_size_t)]),
    "kvg_placement_to_json": (c_int, [POINTER(KvgPlacement), c_char_p, c_size_t, POINTER(c_size_t)]),
    "kvg_accounts_from_json": (c_int, [c_char_p, c_size_t, POINTER(KvgAccountsOptions), POINTER(POINTER(KvgAccounts))]),
    "kvg_accounts_to_json": (c_int, [POINTER(KvgAccounts), c_char_p, c_size_t, POINTER(c_size_t)]),
    "kvg_accounts_resize": (c_int, [POINTER(KvgAccounts), c_char_p, c_size_t]),
    "kvg_accounts_destroy": (None, [POINTER(KvgAccounts)]),
    "kvg_accounts_ledger": (None, [POINTER(KvgAccounts), POINTER(KvgLedger)]),
    "kvg_accounts_info": (c_int, [POINTER(KvgAccounts), c_uint64, POINTER(KvgSequenceInfo)]),
    "kvg_accounts_booked_bytes": (c_int, [POINTER(KvgAccounts), c_uint32, POINTER(c_uint64)]),
    "kvg_accounts_open": (c_int, [POINTER(KvgAccounts), c_uint64, c_uint64]),
    "kvg_accounts_close": (c_int, [POINTER(KvgAccounts), c_uint64]),
    "kvg_accounts_book": (c_int, [POINTER(KvgAccounts), c_uint64, c_uint64]),
    "kvg_accounts_rewind": (c_int, [POINTER(KvgAccounts), c_uint64, c_uint64]),
    "kvg_accounts_trim": (c_int, [POINTER(KvgAccounts), c_uint64]),
    "kvg_accounts_fork": (c_int, [POINTER(KvgAccounts), c_uint64, c_uint64, c_uint64]),
    "kvg_accounts_restore": (c_int, [POINTER(KvgAccounts), c_uint64, c_uint64, c_uint64]),
    "kvg_accounts_snapshot": (c_int, [POINTER(KvgAccounts), c_uint64, POINTER(KvgAccountsMark)]),
    "kvg_accounts_rollback": (c_int, [POINTER(KvgAccounts), POINTER(KvgAccountsMark), c_uint64]),
    "kvg_accounts_taint": (c_int, [POINTER(KvgAccounts), c_uint64]),
    "kvg_accounts_begin": (c_int, [POINTER(KvgAccounts), POINTER(c_uint64), POINTER(c_uint32), c_uint32, POINTER(c_int), POINTER(c_uint64)]),
    "kvg_accounts_extend": (c_int, [POINTER(KvgAccounts), c_uint64, POINTER(c_uint32), POINTER(c_int)]),
    "kvg_accounts_decide": (c_int, [POINTER(KvgAccounts), c_uint64, POINTER(KvgOutcome), POINTER(c_uint32)]),
    "kvg_taps_gather": (c_int, [POINTER(KvgGrid), POINTER(DflashTapSink), c_uint64, KvgStream]),
    "kvg_taps_gather_start": (c_int, [POINTER(KvgGrid), POINTER(DflashTapSink), c_uint64, KvgStream, POINTER(POINTER(KvgSetup))]),
    "kvg_hc_taps_gather": (c_int, [POINTER(KvgGrid), POINTER(HcTapSink), c_uint64]),
    "kvg_hc_taps_gather_start": (c_int, [POINTER(KvgGrid), POINTER(HcTapSink), c_uint64, POINTER(POINTER(KvgSetup))]),
    "kvg_version": (c_char_p, [POINTER(c_int), POINTER(c_int), POINTER(c_int)]),
    "kvg_encode_batch_launch": (c_int, [POINTER(KvRowsBatch), KvgStream]),
    "kvg_decode_batch_launch": (c_int, [POINTER(KvRowsBatch), KvgStream]),
    "kvg_encode_batch_ref": (None, [POINTER(KvRowsBatch)]),
    "kvg_decode_batch_ref": (None, [POINTER(KvRowsBatch)]),
    "kvg_recurrent_batch_launch": (c_int, [POINTER(KvRecurrentBatch), KvgStream]),
    "kvg_recurrent_batch_ref": (None, [POINTER(KvRecurrentBatch)]),
    "kvg_recurrent_pass_launch": (c_int, [POINTER(KvRecurrentPass), KvgStream]),
    "kvg_move_launch": (c_int, [POINTER(KvMove), c_uint32, KvgStream]),
    "kvg_move_ref": (None, [POINTER(KvMove), c_uint32]),
    "kvg_move_one_launch": (c_int, [KvMove, KvgStream]),
    "kvg_tap_store_launch": (c_int, [c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, KvgStream]),
    "kvg_tap_store_ref": (None, [c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t]),
    "kvg_patch_launch": (c_int, [POINTER(c_uint32), POINTER(KvPatch), c_uint32, KvgStream]),
    "kvg_comm_board_create": (c_int, [POINTER(KvVoteBoard), POINTER(KvCommBoardOptions), POINTER(KvComm)]),
    "kvg_comm_on_devices": (c_int, [POINTER(KvComm), c_char_p, c_size_t]),
    "kvg_vote_post_launch": (c_int, [POINTER(KvVoteBoard), POINTER(KvVoteArrays), KvgStream]),
    "kvg_vote_decide_launch": (c_int, [POINTER(KvVoteBoard), POINTER(KvVoteArrays), KvgStream]),
    "kvg_vote_launch": (c_int, [POINTER(KvVoteBoard), POINTER(KvVoteArrays), KvgStream]),
    "kvg_vote_peek_launch": (c_int, [POINTER(KvVoteBoard), c_uint64, c_void_p, KvgStream]),
    "kvg_vote_send_launch": (c_int, [POINTER(KvVoteBoard), POINTER(KvVoteRecord), KvgStream]),
    "kvg_vote_send_ref": (None, [POINTER(KvVoteBoard), POINTER(KvVoteRecord)]),
    "kvg_dev_cuda": (c_int, [POINTER(KvgCudaOptions), POINTER(KvDev)]),
    "kvg_cuda_probe": (c_int, [c_char_p, c_size_t]),
    "kvg_cuda_sleep": (c_int, [POINTER(KvDev)]),
    "kvg_cuda_wake": (c_int, [POINTER(KvDev)]),
    "kvg_cuda_refill": (c_int, [POINTER(KvDev)]),
    "kvg_cuda_forget_stream": (c_int, [POINTER(KvDev), KvgStream]),
    "kvg_cuda_export": (c_int, [POINTER(KvDev), c_void_p, POINTER(c_int), POINTER(c_void_p), POINTER(c_size_t)]),
    "kvg_cuda_tracer": (POINTER(KvgTracer), []),
}

FALLIBLE = {  # those that answer a KvgStatus
    "kvg_format_parse",
    "kvg_format_row_bytes",
    "kvg_policy_from_env",
    "kvg_policy_process",
    "kvg_knob_get",
    "kvg_model_config_load",
    "kvg_model_config_parse_json",
    "kvg_model_config_parse_gguf",
    "kvg_layer_formats",
    "kvg_sizing_default",
    "kvg_cache_bytes_per_token",
    "kvg_cache_bytes_per_token_for_layers",
    "kvg_cache_bytes_per_token_for_plan",
    "kvg_latent_kv_bytes_per_token_for_plan",
    "kvg_cache_ring_bytes_per_token",
    "kvg_cache_ring_bytes_per_token_for_layers",
    "kvg_cache_ring_bytes_per_token_for_plan",
    "kvg_cache_ring_row_cap",
    "kvg_cache_ring_row_cap_for_plan",
    "kvg_plan_bytes_per_token",
    "kvg_plan_latent_bytes_per_token",
    "kvg_plan_ring_bytes_per_token",
    "kvg_plan_ring_row_cap",
    "kvg_plan_fixed_bytes",
    "kvg_plan_pool_key_bytes",
    "kvg_kv_ring_init",
    "kvg_kv_ring_append_plan",
    "kvg_kv_ring_physical_range",
    "kvg_kv_ring_restore_plan",
    "kvg_index_ring_round",
    "kvg_tp_kv_init",
    "kvg_tp_kv_begin",
    "kvg_tp_kv_prepare_append",
    "kvg_tp_kv_publish_append_rebase",
    "kvg_tp_kv_publish_append_plan",
    "kvg_tp_kv_peek_append_ring",
    "kvg_tp_kv_commit_target",
    "kvg_tp_kv_publish_finalize",
    "kvg_tp_kv_rewind_to",
    "kvg_tp_kv_publish_hydration",
    "kvg_tp_kv_prepare_grow",
    "kvg_tp_kv_publish_grow",
    "kvg_tp_kv_extend",
    "kvg_tp_kv_physical_range",
    "kvg_vote_accepted_pack",
    "kvg_vote_accepted_unpack",
    "kvg_vote_outcome_status",
    "kvg_vote_post_ref",
    "kvg_vote_decide_ref",
    "kvg_head_shard",
    "kvg_tp_check_heads",
    "kvg_tp_kv_rank_allocation_shape",
    "kvg_tp_kv_shape_allocation_bytes",
    "kvg_resident_tp_kv_init",
    "kvg_resident_tp_kv_begin",
    "kvg_resident_tp_kv_prepare_append",
    "kvg_resident_tp_kv_publish_append_rebase",
    "kvg_resident_tp_kv_publish_append_plan",
    "kvg_resident_tp_kv_peek_append_ring",
    "kvg_resident_tp_kv_commit_target",
    "kvg_resident_tp_kv_publish_finalize",
    "kvg_resident_tp_kv_rewind_to",
    "kvg_resident_tp_kv_publish_hydration",
    "kvg_resident_tp_kv_physical_range",
    "kvg_resident_tp_kv_prepare_grow",
    "kvg_resident_tp_kv_grow_layer_bytes",
    "kvg_resident_tp_kv_publish_grow",
    "kvg_resident_tp_kv_allocation_bytes",
    "kvg_partition",
    "kvg_fence_check",
    "kvg_dev_host",
    "kvg_dev_host_plain",
    "kvg_dev_host_memory",
    "kvg_dev_copy_range_into",
    "kvg_dev_clone",
    "kvg_comm_self",
    "kvg_inproc_create",
    "kvg_inproc_attach",
    "kvg_mesh_create",
    "kvg_rendezvous_create",
    "kvg_shm_memory",
    "kvg_shm_bootstrap_create",
    "kvg_comm_shm_create",
    "kvg_latent_snapshot_plane",
    "kvg_latent_validate_restore",
    "kvg_latent_restore_plane",
    "kvg_latent_snapshot_tail",
    "kvg_latent_snapshot_plane_at",
    "kvg_dflash_tap_new",
    "kvg_dflash_tap_arm",
    "kvg_dflash_tap_write",
    "kvg_hc_tap_new",
    "kvg_hc_tap_arm",
    "kvg_hc_tap_write",
    "kvg_hc_tap_drain",
    "kvg_digest_combine",
    "kvg_grid_plan",
    "kvg_ledger_init",
    "kvg_ledger_from_json",
    "kvg_ledger_check",
    "kvg_ledger_admit",
    "kvg_ledger_grow",
    "kvg_grid_create",
    "kvg_grid_create_inproc",
    "kvg_grid_progress",
    "kvg_grid_state",
    "kvg_grid_settle",
    "kvg_grid_settle_start",
    "kvg_setup_test",
    "kvg_setup_wait",
    "kvg_place",
    "kvg_place_start",
    "kvg_placement_flush",
    "kvg_placement_resize",
    "kvg_placement_resize_start",
    "kvg_placement_prepare",
    "kvg_placement_sleep",
    "kvg_placement_sleep_start",
    "kvg_placement_wake",
    "kvg_placement_wake_start",
    "kvg_layer_counts",
    "kvg_sequence_open",
    "kvg_sequence_close",
    "kvg_sequence_book",
    "kvg_sequence_rewind",
    "kvg_sequence_trim",
    "kvg_sequence_fork",
    "kvg_sequence_snapshot",
    "kvg_sequence_snapshot_into",
    "kvg_sequence_rollback",
    "kvg_sequence_restore",
    "kvg_sequence_fill_kv",
    "kvg_sequence_taint",
    "kvg_sequence_attach_taps",
    "kvg_sequence_park_logits",
    "kvg_sequence_info",
    "kvg_sequence_read",
    "kvg_sequence_digest",
    "kvg_sequence_digest_start",
    "kvg_sequence_leaves",
    "kvg_grid_rebuild",
    "kvg_grid_rebuild_start",
    "kvg_grid_join",
    "kvg_grid_join_start",
    "kvg_batch_create",
    "kvg_batch_set",
    "kvg_step_begin",
    "kvg_step_begin_joint",
    "kvg_step_extend",
    "kvg_step_refusal",
    "kvg_step_local",
    "kvg_write_kv",
    "kvg_write_latent",
    "kvg_recurrent_update",
    "kvg_step_post",
    "kvg_step_test",
    "kvg_step_wait",
    "kvg_grid_vote_on_device",
    "kvg_batch_capture_begin",
    "kvg_batch_capture_end",
    "kvg_run_arrays",
    "kvg_run_begin",
    "kvg_run_begin_joint",
    "kvg_run_refusal",
    "kvg_graph_launch",
    "kvg_run_test",
    "kvg_run_end",
    "kvg_run_result",
    "kvg_stats",
    "kvg_stats_quick",
    "kvg_stats_over_grid",
    "kvg_stats_over_grid_start",
    "kvg_stats_total",
    "kvg_stats_prometheus",
    "kvg_placement_to_json",
    "kvg_accounts_from_json",
    "kvg_accounts_to_json",
    "kvg_accounts_resize",
    "kvg_accounts_info",
    "kvg_accounts_booked_bytes",
    "kvg_accounts_open",
    "kvg_accounts_close",
    "kvg_accounts_book",
    "kvg_accounts_rewind",
    "kvg_accounts_trim",
    "kvg_accounts_fork",
    "kvg_accounts_restore",
    "kvg_accounts_snapshot",
    "kvg_accounts_rollback",
    "kvg_accounts_taint",
    "kvg_accounts_begin",
    "kvg_accounts_extend",
    "kvg_accounts_decide",
    "kvg_taps_gather",
    "kvg_taps_gather_start",
    "kvg_hc_taps_gather",
    "kvg_hc_taps_gather_start",
    "kvg_encode_batch_launch",
    "kvg_decode_batch_launch",
    "kvg_recurrent_batch_launch",
    "kvg_recurrent_pass_launch",
    "kvg_move_launch",
    "kvg_move_one_launch",
    "kvg_tap_store_launch",
    "kvg_patch_launch",
    "kvg_comm_board_create",
    "kvg_vote_post_launch",
    "kvg_vote_decide_launch",
    "kvg_vote_launch",
    "kvg_vote_peek_launch",
    "kvg_vote_send_launch",
    "kvg_dev_cuda",
    "kvg_cuda_sleep",
    "kvg_cuda_wake",
    "kvg_cuda_refill",
    "kvg_cuda_forget_stream",
    "kvg_cuda_export",
}
