// One range of bytes laid over several files of equal length, stripe by stripe: stripe s lies in
// file s mod files. Data path: block files ask it where a byte of theirs lies. Pure.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace dslaunch::storage {

struct StripeLayout {
    int files = 1;
    Bytes stripe;  // a multiple of kBlockAlignment; not read when there is one file
};

struct StripePlace {
    int file = 0;
    int64_t offset_bytes = 0;  // place of the byte in that file
    int64_t run_bytes = 0;     // number of bytes from there on that are contiguous in that file
};

// The place of the byte at OFFSET_BYTES. REQUIRES: offset_bytes >= 0.
[[nodiscard]] StripePlace stripe_place(const StripeLayout& layout, int64_t offset_bytes);

// The length that each file needs for CAPACITY in all: whole stripes.
[[nodiscard]] Bytes stripe_file_bytes(const StripeLayout& layout, Bytes capacity);

}  // namespace dslaunch::storage
