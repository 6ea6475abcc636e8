#include "storage/export/checkpoint_source.h"

#include <algorithm>
#include <memory>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::storage {
namespace {

constexpr int64_t kPartNumel = int64_t{1} << 18;

struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

CheckpointSource::CheckpointSource(const FileTree& tree, std::string folder)
    : reader_(tree, std::move(folder)) {
    const Checkpoint& checkpoint = reader_.checkpoint();
    places_.assign(checkpoint.tensors.size(),
                   std::vector<std::vector<Place>>(checkpoint.states.size() + 1));
    for (const CheckpointFile& file : checkpoint.files) {
        for (const WrittenPiece& written : file.pieces) {
            const CheckpointPiece& piece = written.piece;
            places_[piece.tensor][piece.state + 1].push_back({&file, &written, false});
        }
    }
    for (auto& states : places_) {
        for (std::vector<Place>& places : states) {
            std::ranges::sort(places, {},
                              [](const Place& place) { return place.piece->piece.elements.begin; });
        }
    }
}

const std::vector<CheckpointSource::Place>& CheckpointSource::places(int tensor, int state) const {
    return places_.at(tensor).at(state + 1);
}

void CheckpointSource::read(int tensor, int state, const Range& elements, const Use& use) const {
    for (int64_t begin = elements.begin; begin < elements.end(); begin += kPartNumel)
        reader_.for_each(tensor, state, {begin, std::min(kPartNumel, elements.end() - begin)}, use);
}

void CheckpointSource::check(const Place& place) const {
    if (place.checked) return;
    const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
    DSL_CHECK(state && XXH3_128bits_reset(state.get()) == XXH_OK, "no state for a hash");
    const CheckpointPiece& piece = place.piece->piece;
    read(piece.tensor, piece.state, piece.elements,
         [&](const Range&, std::span<const std::byte> bytes) {
             XXH3_128bits_update(state.get(), bytes.data(), bytes.size());
         });
    const XXH128_hash_t found = XXH3_128bits_digest(state.get());
    if (Hash128{found.low64, found.high64} != place.piece->hash) {
        const CheckpointTensor& tensor = tensors()[piece.tensor];
        fail(ExitCode::kCheckpoint,
             "{}/{}: {} of `{}`, elements {} to {} at byte {}, is not what was written (its hash "
             "differs): the disk or a copy has damaged the file. `dslaunch ckpt verify` on the "
             "folder above lists what is whole",
             path(), place.file->name,
             piece.state == kWeights ? "the weights" : reader_.checkpoint().states[piece.state],
             tensor.name, piece.elements.begin, piece.elements.end(), place.piece->offset_bytes);
    }
    place.checked = true;
}

void CheckpointSource::for_each(int tensor, int state, const Range& elements,
                                const Use& use) const {
    for (const Place& place : places(tensor, state)) {
        const Range part = intersect(place.piece->piece.elements, elements);
        if (part.numel == 0) continue;
        check(place);
        read(tensor, state, part, use);
    }
}

std::vector<HashedRange> CheckpointSource::hashes(int tensor, int state) const {
    std::vector<HashedRange> all;
    for (const Place& place : places(tensor, state))
        all.push_back({place.piece->piece.elements, place.piece->hash});
    return all;
}

}  // namespace dslaunch::storage
