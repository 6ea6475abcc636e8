// The paged cache of keys and values, and attention to it. A batch contains only the numbers of
// pages; this object has their memory. Data path: keys and values -> [here] -> attention's
// output. One thread calls; the team's threads compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "decoder/decode/batch.h"
#include "decoder/decode/row_math.h"
#include "kernels/matrix/attend.h"

namespace dslaunch::decoder {

// The dimensions of a rank's cache.
struct CacheShape {
    int64_t layers = 0;
    int64_t heads = 0, key_heads = 0;  // numbers of heads on this rank
    int64_t pages = 0;
    DType dtype = DType::kF32;  // type of keys and values: kF32, kBF16 or kF16
};

// The cache of keys and values. It owns the memory of all pages.
class KeyValueCache {
  public:
    // CONFIG must outlive this object. Throws Error{kSetup} if there is no memory for the cache.
    KeyValueCache(const storage::TransformerConfig& config, const CacheShape& shape);

    // Returns the number of bytes that a page takes in all layers. Uses only layers, key_heads and
    // dtype of SHAPE.
    [[nodiscard]] static int64_t page_bytes(const storage::TransformerConfig& config,
                                            const CacheShape& shape);

    // Stores the keys and values of BATCH's rows in the pages of layer LAYER. SHAPE: [rows,
    // key_heads, head_width].
    void store(const Batch& batch, size_t layer, const float* keys, const float* values,
               RowMath& math);

    // Computes the attention of BATCH's rows in layer LAYER. Each row attends to its own position
    // and to all positions before it. If IN_WINDOW is true, it attends only to the last `window`
    // positions. SHAPE of QUERIES and OUT: [rows, heads, head_width]. REQUIRES: the keys and values
    // of all these positions were stored.
    void attend(const Batch& batch, size_t layer, bool in_window, const float* queries, float* out,
                RowMath& math);

  private:
    // Returns the place of PAGE in LAYER: of its values if VALUES is true, else of its keys.
    [[nodiscard]] std::byte* half_page(size_t layer, bool values, int32_t page);

    const storage::TransformerConfig& config_;
    CacheShape shape_;
    int64_t half_page_bytes_ = 0;  // bytes of keys, or of values, of a page in a layer
    PageMemory memory_;
    kernels::AttendScratch scratch_;
    std::vector<kernels::AttendRow> attend_rows_;
    std::vector<const void*> key_pages_, value_pages_;  // one sequence after the other
};

}  // namespace dslaunch::decoder
