// Attention of single query rows over a paged cache of keys and values. Data path: rotated q and
// the cache -> [here] -> the output projection. All arithmetic is fp32; only the cache may be
// stored in 16 bits. The softmax is the online one (Milakov & Gimelshein 2018), in chunks of
// kAttendChunk positions that are merged in order: a row of the result depends on that row alone,
// not on the team or the instruction set. A key and a value are read once for all query heads that
// share them. Threads: the team's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/kinds/dtype.h"
#include "kernels/isa.h"
#include "kernels/thread_team.h"

namespace dslaunch::kernels {

inline constexpr int64_t kAttendChunk = 1024;

// The settings that all rows of a call share.
struct AttendShape {
    int64_t heads = 0;  // query heads; a multiple of kv_heads. Head h reads h / (heads / kv_heads)
    int64_t kv_heads = 0;        // heads of the cache
    int64_t width = 0;           // elements of a head; at most kAttendWidthMax
    int64_t page_positions = 0;  // positions of a page
    DType cache = DType::kF32;   // kF32, kBF16 or kF16
    float scale = 1;             // factor of q · k
    float softcap = 0;           // 0: none; else softcap · tanh(score / softcap)
};
inline constexpr int64_t kAttendWidthMax = 512;

// One query row over one sequence's cache.
struct AttendRow {
    const float* q = nullptr;  // [heads, width]
    float* out = nullptr;      // [heads, width]
    // Page i holds positions [i · page_positions, …) as [page_positions, kv_heads, width] of the
    // cache's type. Pages without a position in [begin, length) are not read.
    const void* const* key_pages = nullptr;
    const void* const* value_pages = nullptr;
    int64_t length = 0;  // positions that exist for this row, including its own
    int64_t begin = 0;   // the first position it attends to: max(0, length - window)
};

// Memory that is reused from call to call. Threads: one call at a time.
struct AttendScratch {
    std::vector<float> partial;
};

// Sets, for each row, out[h] = Σ softmax(score[h])[p] · value[p] over positions [begin, length).
// Consecutive rows with the same page tables (the rows of one prompt) share reads of the cache; a
// cached number that is not finite may then affect rows that do not attend to it. REQUIRES: 0 <=
// begin < length for each row; the limits in AttendShape; no OUT overlaps an array that is read.
void attend(const AttendShape& shape, std::span<const AttendRow> rows, AttendScratch& scratch,
            ThreadTeam& team, MatrixIsa isa = matrix_isa_in_use());

}  // namespace dslaunch::kernels
