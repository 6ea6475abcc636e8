#include "storage/checkpoint/shard_writer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "storage/checkpoint/finite_scan.h"
#include "storage/checkpoint/manifest_check.h"

namespace dslaunch::storage {
namespace {

// A chunk is hashed, looked through and copied while it lies in the cache.
constexpr size_t kChunkBytes = size_t{128} << 10;

}  // namespace

class ShardWriter::Impl {
  public:
    Impl(FileTree& tree, std::string folder, ShardPlan plan, const Checkpoint& checkpoint)
        : tree_(tree), folder_(std::move(folder)), plan_(std::move(plan)), checkpoint_(checkpoint) {
        DSL_CHECK(is_file_name(plan_.name), "'{}' is no name of a file", plan_.name);
        const std::string header = shard_header(plan_, checkpoint_);
        file_ = {plan_.name, static_cast<int64_t>(header.size()), hash_of(header), {}};
        sink_ = tree_.create(folder_ + "/" + plan_.name, file_bytes(plan_, checkpoint_));
        sink_->write(std::as_bytes(std::span(header)));
        begin_pieces();
    }

    void write(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            DSL_CHECK(left_bytes_ > 0, "{}: more bytes than its pieces have", plan_.name);
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
        DSL_CHECK(file_.pieces.size() == plan_.pieces.size(), "{}: {} of {} pieces are written",
                  plan_.name, file_.pieces.size(), plan_.pieces.size());
        sink_->sync();
        tree_.sync_folder(folder_);
        return std::move(file_);
    }

  private:
    // Pieces without elements end as they begin.
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
        file_.pieces.push_back({piece, file_.bytes, {hash.low64, hash.high64}, scan_->finite()});
        file_.bytes += piece_bytes(checkpoint_, piece);
    }

    FileTree& tree_;
    std::string folder_;
    ShardPlan plan_;
    const Checkpoint& checkpoint_;
    CheckpointFile file_;  // the part of it that is written
    std::unique_ptr<FileSink> sink_;
    int64_t left_bytes_ = 0;  // bytes of the piece still to come
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
