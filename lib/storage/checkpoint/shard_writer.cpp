#include "storage/checkpoint/shard_writer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {
namespace {

// The size of the chunks that are hashed, scanned and copied. A chunk fits in the processor's
// cache, so only the first of these three passes reads it from memory.
constexpr size_t kChunkBytes = size_t{128} << 10;

// Returns true if any element has all of BITS set. The loop has no branch, so that the compiler can
// vectorize it.
template <typename Element>
bool any_with(std::span<const std::byte> bytes, uint64_t bits) {
    const auto exponent = static_cast<Element>(bits);
    Element found = 0;
    for (size_t at = 0; at + sizeof(Element) <= bytes.size(); at += sizeof(Element)) {
        Element element;
        std::memcpy(&element, bytes.data() + at, sizeof(element));
        found = static_cast<Element>(found | ((element & exponent) == exponent ? 1 : 0));
    }
    return found != 0;
}

// Looks for NaN and infinity in bytes that come in parts. An element may be split between two
// parts.
class FiniteScan {
  public:
    // Integers are always finite.
    explicit FiniteScan(DType dtype);
    void add(std::span<const std::byte> bytes);
    // Returns true if all complete elements so far are finite.
    [[nodiscard]] bool is_finite() const { return !has_found_; }

  private:
    void look(std::span<const std::byte> elements);

    size_t element_bytes_ = 0;  // 0 if there is nothing to look for
    uint64_t exponent_ = 0;     // an element with all these bits set is NaN or infinity
    bool has_found_ = false;
    std::array<std::byte, 8> begun_{};  // the first bytes of an element that is split
    size_t begun_bytes_ = 0;
};

FiniteScan::FiniteScan(DType dtype) {
    switch (dtype) {
        case DType::kF16:
            exponent_ = 0x7C00;
            break;
        case DType::kBF16:
            exponent_ = 0x7F80;
            break;
        case DType::kC64:
            exponent_ = 0x7F80'0000;
            element_bytes_ = sizeof(float);  // size of the real or the imaginary part
            return;
        case DType::kF32:
            exponent_ = 0x7F80'0000;
            break;
        case DType::kF64:
            exponent_ = 0x7FF0'0000'0000'0000;
            break;
        default:
            return;
    }
    element_bytes_ = static_cast<size_t>(dtype_bytes(dtype));
}

void FiniteScan::look(std::span<const std::byte> elements) {
    if (element_bytes_ == 2) has_found_ = any_with<uint16_t>(elements, exponent_) || has_found_;
    if (element_bytes_ == 4) has_found_ = any_with<uint32_t>(elements, exponent_) || has_found_;
    if (element_bytes_ == 8) has_found_ = any_with<uint64_t>(elements, exponent_) || has_found_;
}

void FiniteScan::add(std::span<const std::byte> bytes) {
    if (element_bytes_ == 0) return;
    if (begun_bytes_ > 0) {
        const size_t taken = std::min(element_bytes_ - begun_bytes_, bytes.size());
        std::copy_n(bytes.begin(), taken, begun_.begin() + static_cast<ptrdiff_t>(begun_bytes_));
        begun_bytes_ += taken;
        bytes = bytes.subspan(taken);
        if (begun_bytes_ < element_bytes_) return;
        look(std::span(begun_).first(element_bytes_));
        begun_bytes_ = 0;
    }
    const size_t whole = bytes.size() / element_bytes_ * element_bytes_;
    look(bytes.first(whole));
    begun_bytes_ = bytes.size() - whole;
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(whole), begun_bytes_, begun_.begin());
}

}  // namespace

class ShardWriter::Impl {
  public:
    Impl(FileTree& tree, std::string folder, ShardPlan plan, const Checkpoint& checkpoint)
        : tree_(tree), folder_(std::move(folder)), plan_(std::move(plan)), checkpoint_(checkpoint) {
        DSL_CHECK(is_file_name(plan_.name), "'{}' is not a valid file name", plan_.name);
        const std::string header = shard_header(plan_, checkpoint_);
        file_ = {plan_.name, static_cast<int64_t>(header.size()), hash_of(header), {}};
        sink_ = tree_.create(folder_ + "/" + plan_.name, file_bytes(plan_, checkpoint_));
        sink_->write(std::as_bytes(std::span(header)));
        begin_pieces();
    }

    void write(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            DSL_CHECK(left_bytes_ > 0, "{}: more bytes were written than its pieces have",
                      plan_.name);
            const size_t taken =
                std::min({bytes.size(), static_cast<size_t>(left_bytes_), kChunkBytes});
            const auto chunk = bytes.first(taken);
            XXH3_128bits_update(&hash_, chunk.data(), chunk.size());
            scan_->add(chunk);
            sink_->write(chunk);
            bytes = bytes.subspan(taken);
            left_bytes_ -= static_cast<int64_t>(taken);
            if (left_bytes_ > 0) continue;
            end_piece();
            begin_pieces();
        }
    }

    CheckpointFile finish() {
        DSL_CHECK(file_.pieces.size() == plan_.pieces.size(),
                  "{}: only {} of {} pieces were written", plan_.name, file_.pieces.size(),
                  plan_.pieces.size());
        sink_->sync();
        tree_.sync_folder(folder_);
        return std::move(file_);
    }

  private:
    // Begins the next piece that has elements, and ends the empty pieces before it.
    void begin_pieces() {
        while (left_bytes_ == 0 && file_.pieces.size() < plan_.pieces.size()) {
            const CheckpointPiece& piece = plan_.pieces[file_.pieces.size()];
            left_bytes_ = piece_bytes(checkpoint_, piece);
            XXH3_128bits_reset(&hash_);
            scan_.emplace(piece_dtype(checkpoint_, piece));
            if (left_bytes_ == 0) end_piece();
        }
    }

    void end_piece() {
        const CheckpointPiece& piece = plan_.pieces[file_.pieces.size()];
        const XXH128_hash_t hash = XXH3_128bits_digest(&hash_);
        file_.pieces.push_back({piece, file_.bytes, {hash.low64, hash.high64}, scan_->is_finite()});
        file_.bytes += piece_bytes(checkpoint_, piece);
    }

    FileTree& tree_;
    std::string folder_;
    ShardPlan plan_;
    const Checkpoint& checkpoint_;
    CheckpointFile file_;  // the part that is written so far
    std::unique_ptr<FileSink> sink_;
    int64_t left_bytes_ = 0;  // bytes of the piece that are not yet written
    alignas(64) XXH3_state_t hash_{};
    std::optional<FiniteScan> scan_;
};

ShardWriter::ShardWriter(FileTree& tree, const std::string& folder, ShardPlan plan,
                         const Checkpoint& checkpoint)
    : impl_(std::make_unique<Impl>(tree, folder, std::move(plan), checkpoint)) {}

ShardWriter::~ShardWriter() = default;

void ShardWriter::write(std::span<const std::byte> bytes) {
    impl_->write(bytes);
}

CheckpointFile ShardWriter::finish() {
    return impl_->finish();
}

Bytes ShardWriter::file_bytes(const ShardPlan& plan, const Checkpoint& checkpoint) {
    Bytes bytes{static_cast<int64_t>(shard_header(plan, checkpoint).size())};
    for (const CheckpointPiece& piece : plan.pieces) bytes += Bytes{piece_bytes(checkpoint, piece)};
    return bytes;
}

}  // namespace dslaunch::storage
