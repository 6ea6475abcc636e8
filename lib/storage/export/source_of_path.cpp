#include "storage/export/source_of_path.h"

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "storage/files/input_file.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/model_folder.h"
#include "storage/named/place.h"

namespace dslaunch::storage {
namespace {

constexpr int64_t kPartNumel = int64_t{1} << 18;
constexpr int64_t kChunkOfFileBytes = int64_t{1} << 20;

struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

// A checkpoint of dslaunch. Each piece is compared with its hash once, before it is used.
class CheckpointSource final : public TensorSource {
  public:
    // Throws what CheckpointReader throws. TREE must outlive the source.
    CheckpointSource(const FileTree& tree, std::string folder) : reader_(tree, std::move(folder)) {
        const Checkpoint& checkpoint = reader_.checkpoint();
        places_.assign(checkpoint.tensors.size(),
                       std::vector<std::vector<Place>>(checkpoint.states.size() + 1));
        for (const CheckpointFile& file : checkpoint.files)
            for (const WrittenPiece& written : file.pieces)
                places_[written.piece.tensor][written.piece.state + 1].push_back(
                    {&file, &written, false});
        const auto begin = [](const Place& place) { return place.piece->piece.elements.begin; };
        for (auto& states : places_)
            for (std::vector<Place>& places : states) std::ranges::sort(places, {}, begin);
    }

    [[nodiscard]] const std::string& path() const override { return reader_.folder(); }
    [[nodiscard]] const std::vector<CheckpointTensor>& tensors() const override {
        return reader_.checkpoint().tensors;
    }
    [[nodiscard]] const Checkpoint* checkpoint() const override { return &reader_.checkpoint(); }

    void for_each(int tensor, int state, const Range& elements, const Use& use) const override {
        for (const Place& place : places_.at(tensor).at(state + 1)) {
            const Range part = intersect(place.piece->piece.elements, elements);
            if (part.numel == 0) continue;
            check(place);
            read(tensor, state, part, use);
        }
    }

    [[nodiscard]] std::vector<HashedRange> hashes(int tensor, int state) const override {
        std::vector<HashedRange> all;
        for (const Place& place : places_.at(tensor).at(state + 1))
            all.push_back({place.piece->piece.elements, place.piece->hash});
        return all;
    }

  private:
    struct Place {
        const CheckpointFile* file = nullptr;
        const WrittenPiece* piece = nullptr;
        mutable bool is_checked = false;
    };

    // Reads in parts of about 1 MiB.
    void read(int tensor, int state, const Range& elements, const Use& use) const {
        for (int64_t begin = elements.begin; begin < elements.end(); begin += kPartNumel)
            reader_.for_each(tensor, state, {begin, std::min(kPartNumel, elements.end() - begin)},
                             use);
    }

    void check(const Place& place) const {
        if (place.is_checked) return;
        const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
        DSL_CHECK(state && XXH3_128bits_reset(state.get()) == XXH_OK,
                  "cannot create the state of an XXH3 hash");
        const CheckpointPiece& piece = place.piece->piece;
        read(piece.tensor, piece.state, piece.elements,
             [&](const Range&, std::span<const std::byte> bytes) {
                 XXH3_128bits_update(state.get(), bytes.data(), bytes.size());
             });
        const XXH128_hash_t found = XXH3_128bits_digest(state.get());
        if (Hash128{found.low64, found.high64} != place.piece->hash)
            fail(ExitCode::kCheckpoint,
                 "{}/{}: the hash of {} of `{}` (elements {} to {}, at byte {}) differs from what "
                 "was written: the disk or a copy has damaged the file. Run `dslaunch ckpt verify` "
                 "on the parent folder to list the intact checkpoints",
                 path(), place.file->name,
                 piece.state == kWeights ? "the weights" : reader_.checkpoint().states[piece.state],
                 tensors()[piece.tensor].name, piece.elements.begin, piece.elements.end(),
                 place.piece->offset_bytes);
        place.is_checked = true;
    }

    CheckpointReader reader_;
    // The pieces, sorted by their elements. places_[tensor][0] has the pieces of the weights, and
    // places_[tensor][k + 1] has the pieces of state k.
    std::vector<std::vector<std::vector<Place>>> places_;
};

// The tensors of .safetensors files, which contain only weights.
class SafetensorsSource final : public TensorSource {
  public:
    SafetensorsSource(const std::string& path, const std::vector<std::string>& files)
        : path_(path) {
        std::set<std::string> names;
        for (const std::string& name : files) {
            files_.push_back(std::make_unique<SafetensorsFile>(name));
            for (const SafetensorsEntry& entry : files_.back()->entries()) {
                if (!names.insert(entry.name).second)
                    fail(ExitCode::kInput, "{}: tensor `{}` is also in another file of {}", name,
                         printable(entry.name), path_);
                CheckpointTensor tensor;
                tensor.name = entry.name;
                tensor.dtype = entry.dtype;
                tensor.shape = entry.shape;
                tensor.kind = TensorKind::kFrozen;
                tensors_.push_back(std::move(tensor));
                places_.push_back({files_.back().get(), &entry});
            }
        }
    }

    [[nodiscard]] const std::string& path() const override { return path_; }
    [[nodiscard]] const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
    [[nodiscard]] const Checkpoint* checkpoint() const override { return nullptr; }
    [[nodiscard]] std::vector<HashedRange> hashes(int, int) const override { return {}; }

    void for_each(int tensor, int state, const Range& elements, const Use& use) const override {
        DSL_CHECK(state == kWeights,
                  "a .safetensors file has weights only, but an optimizer state was requested");
        const auto& [file, entry] = places_.at(static_cast<size_t>(tensor));
        const int64_t bytes = dtype_bytes(entry->dtype);
        const int64_t part_numel = kChunkOfFileBytes / bytes;
        for (int64_t begin = elements.begin; begin < elements.end(); begin += part_numel) {
            const Range part{begin, std::min(part_numel, elements.end() - begin)};
            const auto memory = entry->bytes.subspan(static_cast<size_t>(part.begin * bytes),
                                                     static_cast<size_t>(part.numel * bytes));
            use(part, memory);
            file->discard(memory);
        }
    }

  private:
    std::string path_;
    std::vector<std::unique_ptr<SafetensorsFile>> files_;
    std::vector<CheckpointTensor> tensors_;
    std::vector<std::pair<const SafetensorsFile*, const SafetensorsEntry*>> places_;  // by tensor
};

bool is_file(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

bool holds_checkpoints(FileTree& tree, const std::string& path) {
    try {
        const CheckpointPlace place = find_checkpoints(tree, path);
        return !place.step_folder.empty() || !CheckpointStore(tree, place.root, 0).list().empty();
    } catch (const Error& error) {  // PATH leads to no checkpoint
        if (error.code() == ExitCode::kCheckpoint) return false;
        throw;
    }
}

std::string choose_checkpoint(FileTree& tree, const std::string& path) {
    const auto chosen = [&](const std::string& folder) {
        if (const std::string other = other_latest_text(tree, path, folder, ""); !other.empty())
            log_warn("checkpoint", "{}", other);
        return folder;
    };
    const CheckpointPlace place = find_checkpoints(tree, path);
    if (!place.step_folder.empty()) return chosen(place.step_folder);
    const std::vector<StoredCheckpoint> all = CheckpointStore(tree, place.root, 0).list();
    for (const StoredCheckpoint& one : all)
        if (one.is_complete && one.is_finite) return chosen(one.folder);
    if (all.empty())
        fail(ExitCode::kCheckpoint,
             "{}: there is no checkpoint here (looked for step-N folders in {})", path, place.root);
    const StoredCheckpoint& newest = all.front();
    fail(ExitCode::kCheckpoint,
         "{}: no checkpoint here is complete and finite; the newest of {} is {}: {}. To use a "
         "checkpoint anyway, give its step-N folder",
         path, all.size(), newest.folder,
         newest.is_complete ? "contains a NaN or an infinity" : newest.fault);
}

std::unique_ptr<TensorSource> open_safetensors(const std::string& path,
                                               const std::vector<std::string>& files) {
    return std::make_unique<SafetensorsSource>(path, files);
}

std::unique_ptr<TensorSource> open_checkpoint(FileTree& tree, const std::string& path) {
    return std::make_unique<CheckpointSource>(tree, choose_checkpoint(tree, path));
}

std::unique_ptr<TensorSource> open_tensor_source(FileTree& tree, const std::string& path) {
    if (is_file(path)) {
        const Place place = place_at(path);
        const bool is_adapter = place.kind == PlaceKind::kFileOfAdapter;
        if (path.ends_with(".safetensors") && !is_adapter && !is_file_of_rows(path))
            return open_safetensors(path, {path});
        refuse_place(place, is_adapter ? PlaceUse::kModel : PlaceUse::kCheckpoint);
    }
    if (!holds_checkpoints(tree, path)) {
        if (const auto files = safetensors_files_of(path); !files.empty())
            return open_safetensors(path, files);
    }
    return open_checkpoint(tree, path);
}

}  // namespace dslaunch::storage
