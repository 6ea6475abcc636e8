#include "kernels/matrix/attend.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/matrix/matrix_tables.h"

namespace dslaunch::kernels {
namespace {

// The largest number of queries that one read of the cache serves. The queries and their sums stay
// in L1 and L2.
constexpr int64_t kQueriesMax = 32;

// Rows [first, first + rows), which use the same cache, and the chunks of positions that at least
// one of these rows attends to.
struct RowGroup {
    int64_t first = 0;
    int64_t rows = 0;
    int64_t chunk = 0;
    int64_t chunks = 0;
    int64_t gathered = 0;  // offset of its sums in the scratch: [chunks, rows, heads, width + 2]
};

void check_rows(const AttendShape& shape, std::span<const AttendRow> rows) {
    DSL_CHECK(shape.kv_heads > 0 && shape.heads > 0 && shape.heads % shape.kv_heads == 0 &&
                  shape.width > 0 && shape.width <= kAttendWidthMax && shape.page_positions > 0,
              "{} heads of {} elements do not match {} heads of a cache with pages of {} positions",
              shape.heads, shape.width, shape.kv_heads, shape.page_positions);
    DSL_CHECK(shape.cache == DType::kF32 || is_half(shape.cache), "a cache of {} is not supported",
              dtype_name(shape.cache));
    for (const AttendRow& row : rows)
        DSL_CHECK(row.begin >= 0 && row.begin < row.length,
                  "positions {} to {} are not a valid range", row.begin, row.length);
}

bool same_cache(const AttendRow& a, const AttendRow& b) {
    return a.key_pages == b.key_pages && a.value_pages == b.value_pages;
}

class Attention {
  public:
    Attention(const AttendShape& shape, std::span<const AttendRow> rows)
        : shape_(shape),
          rows_(rows),
          sharing_(shape.heads / shape.kv_heads),
          numel_(shape.width + 2) {
        const int64_t rows_max = std::max<int64_t>(1, kQueriesMax / sharing_);
        for (int64_t row = 0; row < std::ssize(rows); row += groups_.back().rows) {
            int64_t end = row + 1;
            while (end < std::ssize(rows) && end - row < rows_max &&
                   same_cache(rows[row], rows[end]))
                ++end;
            groups_.push_back(group_of(row, end));
        }
    }

    [[nodiscard]] int64_t scratch_numel() const { return scratch_numel_; }
    [[nodiscard]] int64_t tasks() const { return tasks_; }
    [[nodiscard]] int64_t rows() const { return std::ssize(rows_); }

    // Computes task TASK: one head of the cache, one chunk, and the rows of one group.
    void run(int64_t task, float* scratch, const TokenKernels& kernels) const {
        const RowGroup* group = groups_.data();
        for (; task >= group->chunks * shape_.kv_heads; ++group)
            task -= group->chunks * shape_.kv_heads;
        run_part(*group, {task / shape_.kv_heads, task % shape_.kv_heads}, scratch, kernels);
    }

    void finish(int64_t row, const float* scratch, const TokenKernels& kernels) const {
        const RowGroup* group = groups_.data();
        while (row >= group->first + group->rows) ++group;
        const AttendRow& to = rows_[static_cast<size_t>(row)];
        const int64_t first = std::max(group->chunk, to.begin / kAttendChunk);
        const int64_t last = (to.length - 1) / kAttendChunk;
        for (int64_t head = 0; head < shape_.heads; ++head)
            kernels.merge(scratch + place(*group, {first - group->chunk, row, head}),
                          group->rows * shape_.heads * numel_, last - first + 1, shape_.width,
                          to.out + head * shape_.width);
    }

  private:
    struct Part {
        int64_t chunk = 0;  // index in the group
        int64_t kv_head = 0;
    };
    struct Query {
        int64_t chunk = 0;  // index in the group
        int64_t row = 0;
        int64_t head = 0;
    };

    RowGroup group_of(int64_t row, int64_t end) {
        int64_t begin = std::numeric_limits<int64_t>::max(), length = 0;
        for (int64_t i = row; i < end; ++i) {
            begin = std::min(begin, rows_[static_cast<size_t>(i)].begin);
            length = std::max(length, rows_[static_cast<size_t>(i)].length);
        }
        RowGroup group{row, end - row, begin / kAttendChunk, 0, scratch_numel_};
        group.chunks = (length - 1) / kAttendChunk + 1 - group.chunk;
        scratch_numel_ += group.chunks * group.rows * shape_.heads * numel_;
        tasks_ += group.chunks * shape_.kv_heads;
        return group;
    }

    [[nodiscard]] int64_t place(const RowGroup& group, const Query& query) const {
        const int64_t row = query.chunk * group.rows + query.row - group.first;
        return group.gathered + (row * shape_.heads + query.head) * numel_;
    }

    void run_part(const RowGroup& group, const Part& at, float* scratch,
                  const TokenKernels& kernels) const {
        AttendQuery queries[kQueriesMax];
        const AttendRow& cache = rows_[static_cast<size_t>(group.first)];
        const int64_t chunk = group.chunk + at.chunk;
        AttendPart part{queries,
                        0,
                        cache.key_pages,
                        cache.value_pages,
                        shape_.page_positions,
                        shape_.kv_heads * shape_.width,
                        at.kv_head * shape_.width,
                        shape_.width,
                        0,
                        0,
                        shape_.scale,
                        shape_.softcap};
        part.last = chunk * kAttendChunk;
        part.first = (chunk + 1) * kAttendChunk;
        const auto run_queries = [&] {
            kernels.attend[cache_kind()](part);
            part.query_count = 0;
        };
        for (int64_t i = group.first; i < group.first + group.rows; ++i) {
            const AttendRow& row = rows_[static_cast<size_t>(i)];
            const int64_t first = std::max(row.begin, chunk * kAttendChunk);
            const int64_t last = std::min(row.length, (chunk + 1) * kAttendChunk);
            if (first >= last) continue;
            part.first = std::min(part.first, first);
            part.last = std::max(part.last, last);
            for (int64_t h = 0; h < sharing_; ++h) {
                if (part.query_count == kQueriesMax) run_queries();
                const int64_t head = at.kv_head * sharing_ + h;
                float* const gathered = scratch + place(group, {at.chunk, i, head});
                std::fill_n(gathered, shape_.width, 0.0F);
                gathered[shape_.width] = -std::numeric_limits<float>::infinity();
                gathered[shape_.width + 1] = 0.0F;
                queries[part.query_count++] = {row.q + head * shape_.width, gathered, row.begin,
                                               row.length};
            }
        }
        if (part.query_count > 0) run_queries();
    }

    [[nodiscard]] size_t cache_kind() const {
        if (shape_.cache == DType::kF32) return 0;
        return shape_.cache == DType::kBF16 ? 1 : 2;
    }

    const AttendShape& shape_;
    std::span<const AttendRow> rows_;
    int64_t sharing_;  // query heads that share a head of the cache
    int64_t numel_;    // the size of a query's sums
    int64_t scratch_numel_ = 0;
    int64_t tasks_ = 0;
    std::vector<RowGroup> groups_;
};

}  // namespace

void attend(const AttendShape& shape, std::span<const AttendRow> rows, AttendScratch& scratch,
            ThreadTeam& team, MatrixIsa isa) {
    check_rows(shape, rows);
    const Attention attention(shape, rows);
    const auto numel = static_cast<size_t>(attention.scratch_numel());
    if (scratch.partial.size() < numel) scratch.partial.resize(numel);
    float* const partial = scratch.partial.data();
    const TokenKernels& kernels = token_kernels_of(isa);
    team.for_chunks(attention.tasks(),
                    [&](int64_t task) { attention.run(task, partial, kernels); });
    team.for_chunks(attention.rows(),
                    [&](int64_t row) { attention.finish(row, partial, kernels); });
}

}  // namespace dslaunch::kernels
