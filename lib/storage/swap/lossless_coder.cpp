#include "storage/swap/lossless_coder.h"

#include <fmt/format.h>
#include <zstd.h>

#include <new>

#include "base/check.h"

namespace dslaunch::storage {
namespace {

// Level 1 is fast enough for a disk of some GB/s. Higher levels would hardly save more space,
// unless the bytes were first put in another order.
constexpr int kLevel = 1;

template <auto Free>
struct Freed {
    template <typename T>
    void operator()(T* context) const {
        Free(context);
    }
};

}  // namespace

struct LosslessCoder::Contexts {
    std::unique_ptr<ZSTD_CCtx, Freed<&ZSTD_freeCCtx>> compress{ZSTD_createCCtx()};
    std::unique_ptr<ZSTD_DCtx, Freed<&ZSTD_freeDCtx>> expand{ZSTD_createDCtx()};
};

LosslessCoder::LosslessCoder() : contexts_(std::make_unique<Contexts>()) {
    if (contexts_->compress == nullptr || contexts_->expand == nullptr) throw std::bad_alloc();
}

LosslessCoder::~LosslessCoder() = default;

int64_t LosslessCoder::compress(std::span<const std::byte> from, std::span<std::byte> into) {
    const size_t bytes = ZSTD_compressCCtx(contexts_->compress.get(), into.data(), into.size(),
                                           from.data(), from.size(), kLevel);
    return ZSTD_isError(bytes) != 0 ? 0 : static_cast<int64_t>(bytes);
}

void LosslessCoder::expand(std::span<const std::byte> from, std::span<std::byte> into) {
    const size_t bytes = ZSTD_decompressDCtx(contexts_->expand.get(), into.data(), into.size(),
                                             from.data(), from.size());
    DSL_CHECK(bytes == into.size(), "{} compressed bytes expand to {}, expected {}", from.size(),
              ZSTD_isError(bytes) != 0 ? ZSTD_getErrorName(bytes) : fmt::to_string(bytes),
              into.size());
}

}  // namespace dslaunch::storage
