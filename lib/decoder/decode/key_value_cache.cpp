#include "decoder/decode/key_value_cache.h"

#include <algorithm>

#include "base/check.h"
#include "base/kinds/half_arrays.h"

namespace dslaunch::decoder {

KeyValueCache::KeyValueCache(const storage::TransformerConfig& config, const CacheShape& shape)
    : config_(config), shape_(shape) {
    DSL_CHECK(shape.pages > 0, "a cache must have pages");
    const int64_t page = page_bytes(config, shape);
    half_page_bytes_ = page / (2 * shape.layers);
    memory_ = PageMemory(page * shape.pages, "the cache of keys and values");
}

int64_t KeyValueCache::page_bytes(const storage::TransformerConfig& config,
                                  const CacheShape& shape) {
    return shape.layers * 2 * kPagePositions * shape.key_heads * config.head_width *
           dtype_bytes(shape.dtype);
}

std::byte* KeyValueCache::half_page(size_t layer, bool values, int32_t page) {
    const int64_t index =
        (static_cast<int64_t>(layer) * shape_.pages + page) * 2 + (values ? 1 : 0);
    return memory_.bytes().data() + index * half_page_bytes_;
}

void KeyValueCache::store(const Batch& batch, size_t layer, const float* keys, const float* values,
                          RowMath& math) {
    const int64_t numel = shape_.key_heads * config_.head_width;
    const int64_t bytes = numel * dtype_bytes(shape_.dtype);
    math.for_rows(std::ssize(batch.rows), [&](int64_t i) {
        const BatchRow& row = batch.rows[static_cast<size_t>(i)];
        const std::vector<int32_t>& pages = batch.sequences[row.sequence].pages;
        const int32_t page_index = pages[static_cast<size_t>(row.position / kPagePositions)];
        const int64_t offset = row.position % kPagePositions * bytes;
        from_fp32(keys + i * numel, shape_.dtype, numel,
                  half_page(layer, false, page_index) + offset);
        from_fp32(values + i * numel, shape_.dtype, numel,
                  half_page(layer, true, page_index) + offset);
    });
}

void KeyValueCache::attend(const Batch& batch, size_t layer, bool in_window, const float* queries,
                           float* out, RowMath& math) {
    const int64_t rows = std::ssize(batch.rows);
    const int64_t numel = shape_.heads * config_.head_width;
    key_pages_.clear();
    value_pages_.clear();
    std::vector<size_t> first_page;
    for (const BatchSequence& sequence : batch.sequences) {
        first_page.push_back(key_pages_.size());
        for (const int32_t number : sequence.pages) {
            key_pages_.push_back(half_page(layer, false, number));
            value_pages_.push_back(half_page(layer, true, number));
        }
    }
    attend_rows_.clear();
    for (int64_t i = 0; i < rows; ++i) {
        const BatchRow& row = batch.rows[static_cast<size_t>(i)];
        const size_t first = first_page[static_cast<size_t>(row.sequence)];
        const int64_t length = row.position + 1;
        attend_rows_.push_back({queries + i * numel, out + i * numel, key_pages_.data() + first,
                                value_pages_.data() + first, length,
                                in_window ? std::max<int64_t>(length - config_.window, 0) : 0});
    }
    const kernels::AttendShape shape{shape_.heads,
                                     shape_.key_heads,
                                     config_.head_width,
                                     kPagePositions,
                                     shape_.dtype,
                                     static_cast<float>(config_.scale),
                                     static_cast<float>(config_.score_cap)};
    kernels::attend(shape, attend_rows_, scratch_, math.team());
}

}  // namespace dslaunch::decoder
