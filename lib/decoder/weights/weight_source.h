// The weights of a rank's decoder: parts of the tensors of a Hugging Face folder, as they lie in
// its files or rounded to fewer bits, with an adapter's tensors in their place. Data path:
// storage/huggingface/folder_weights.h -> [here] -> decoder_weights.h. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/range.h"
#include "kernels/matrix/packed_matrix.h"
#include "kernels/thread_team.h"
#include "storage/adapter/adapter_changes.h"
#include "storage/files/mapped_file.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/folder_weights.h"

namespace dslaunch::decoder {

// Fresh pages of the system: zeros, aligned to a page, large pages where there are some.
class PageMemory {
  public:
    PageMemory() = default;
    // Pages take memory when they are first written. Throws Error{kSetup} naming BYTES and USE when
    // there is no room for them.
    PageMemory(int64_t bytes, const char* use);
    PageMemory(PageMemory&& other) noexcept;
    PageMemory& operator=(PageMemory&& other) noexcept;
    ~PageMemory();

    [[nodiscard]] std::span<std::byte> bytes() { return bytes_; }
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  private:
    std::span<std::byte> bytes_;
};

// A matrix and the memory of its bytes.
struct OwnedMatrix {
    kernels::PackedMatrix matrix;
    std::shared_ptr<const storage::MappedFile> file;  // shared by all that lie in it; or none
    PageMemory memory;
};

// The part of a stored tensor that becomes a matrix [outputs, inputs].
struct MatrixPart {
    std::string name;  // of the tensor, "model.layers.0.mlp.up_proj.weight"
    int64_t out = 0;   // of the whole
    int64_t in = 0;
    bool transposed = false;  // the file has [in, out]
    Range outputs;            // the part
    Range inputs;
};

// The low-rank change of a layer: y += B (A x).
struct LowRank {
    OwnedMatrix a;  // [r, inputs of the part] fp32
    OwnedMatrix b;  // [outputs of the part, r] fp32, times the adapter's scale
};

// Takes out of a whole weight [out, in] what training took out of it before its first step beside
// the pair of CHANGE. TRANSPOSED: the file has it as [in, out].
using TakeOutBeginning = std::function<void(std::span<float> weight,
                                            const storage::WeightChange& change, bool transposed)>;

class WeightSource {
  public:
    // FORM: the form of products' weights; empty: as they are stored. FOLDER and TEAM must outlive
    // this. Throws Error{kInput} naming the file.
    WeightSource(const storage::ModelFolder& folder, std::optional<kernels::MatrixForm> form,
                 kernels::ThreadTeam& team);

    // Makes all weights as ADAPTER changes them; it must outlive this. CHANGED: the config of the
    // folder as the adapter makes it.
    void adapt(storage::AdapterChanges& adapter, const storage::TransformerConfig& changed,
               TakeOutBeginning take_out);

    // Returns a matrix of products, in the form that was asked for.
    [[nodiscard]] OwnedMatrix matrix(const MatrixPart& part);
    // Returns the same tensor as it is stored, to look up rows.
    [[nodiscard]] OwnedMatrix table(const std::string& name, int64_t rows, int64_t columns);
    // Returns PART of the numbers of a tensor of SIZES, in its order.
    [[nodiscard]] std::vector<float> vector(const std::string& name, std::vector<int64_t> sizes,
                                            Range part);
    [[nodiscard]] std::vector<float> vector(const std::string& name, int64_t numel) {
        return vector(name, {numel}, {0, numel});
    }
    // Returns the adapter's change of the layer whose weight is PART; nothing: it has no change, or
    // the matrix has it.
    [[nodiscard]] std::optional<LowRank> low_rank(const MatrixPart& part);
    // Adds the adapter's change to PART of the bias NAME, of NUMEL numbers; an empty one is zeros.
    void add_to_bias(const std::string& name, int64_t numel, Range part, std::vector<float>& bias);

    // Throws Error{kInput} for a tensor of the folder or of the adapter that nothing took.
    void require_all_taken() const;

  private:
    [[nodiscard]] storage::FolderWeight take(const std::string& name, std::vector<int64_t> sizes);
    [[nodiscard]] const storage::WeightChange* change_of(const std::string& name);
    [[noreturn]] void refuse_form(const storage::WeightChange& change, const char* why) const;
    [[nodiscard]] OwnedMatrix fp32_matrix(const std::vector<float>& numbers, int64_t rows) const;
    // Returns the whole matrix of PART, [out, in], with all of CHANGE that does not lie beside it.
    [[nodiscard]] std::vector<float> changed(const storage::SafetensorsEntry& entry,
                                             const MatrixPart& part,
                                             const storage::WeightChange& change) const;
    void add_pair(const storage::LowRankPair& pair, std::vector<float>& numbers) const;

    storage::FolderWeights weights_;
    const storage::TransformerConfig& stored_;  // the folder's
    storage::AdapterChanges* adapter_ = nullptr;
    storage::TransformerConfig changed_;
    TakeOutBeginning take_out_;
    std::optional<kernels::MatrixForm> form_;
    kernels::ThreadTeam& team_;
};

// Converts numbers to fp32, and back. REQUIRES: DTYPE is kF32, kBF16 or kF16; TO is aligned.
void to_fp32(const std::byte* from, DType dtype, int64_t numel, float* to);
void from_fp32(const float* from, DType dtype, int64_t numel, std::byte* to);

}  // namespace dslaunch::decoder
