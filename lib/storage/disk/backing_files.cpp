#include "storage/disk/backing_files.h"

#include <limits>

#include "base/check.h"

namespace dslaunch::storage {

StripePlace stripe_place(const StripeLayout& layout, int64_t offset_bytes) {
    DSL_CHECK(offset_bytes >= 0, "offset {}", offset_bytes);
    if (layout.files == 1)
        return {0, offset_bytes, std::numeric_limits<int64_t>::max() - offset_bytes};
    const int64_t stripe = offset_bytes / layout.stripe.value;
    const int64_t inside = offset_bytes % layout.stripe.value;
    return {static_cast<int>(stripe % layout.files),
            stripe / layout.files * layout.stripe.value + inside, layout.stripe.value - inside};
}

Bytes stripe_file_bytes(const StripeLayout& layout, Bytes capacity) {
    if (layout.files == 1) return capacity;
    const int64_t round = layout.files * layout.stripe.value;
    return Bytes{round_up(capacity.value, round) / layout.files};
}

}  // namespace dslaunch::storage
