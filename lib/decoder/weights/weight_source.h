// The weights of a rank's decoder: parts of the tensors of a Hugging Face folder, as stored in its
// files or rounded to fewer bits, with the changes of an adapter. Data path:
// storage/huggingface/folder_weights.h -> [here] -> decoder_weights.h. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/range.h"
#include "decoder/weights/page_memory.h"
#include "kernels/matrix/packed_matrix.h"
#include "kernels/thread_team.h"
#include "storage/adapter/adapter_changes.h"
#include "storage/files/mapped_file.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/folder_weights.h"

namespace dslaunch::decoder {

// A matrix and the memory in which its bytes are.
struct OwnedMatrix {
    kernels::PackedMatrix matrix;
    std::shared_ptr<const storage::MappedFile> file;  // set if the bytes are mapped from it
    PageMemory memory;
};

// A part of a stored tensor, which becomes a matrix [outputs, inputs].
struct MatrixPart {
    std::string name;  // the tensor's name, "model.layers.0.mlp.up_proj.weight"
    int64_t out = 0;   // dimensions of the whole tensor
    int64_t in = 0;
    bool transposed = false;  // the file stores [in, out]
    Range outputs;            // the part that is needed
    Range inputs;
};

// The low-rank change that an adapter makes to a layer: y += B (A x).
struct LowRank {
    OwnedMatrix a;  // [r, inputs of the part] fp32
    OwnedMatrix b;  // [outputs of the part, r] fp32, times the adapter's scale
};

// A function for adapters whose initialization subtracted a matrix from the base weight before the
// first training step. It subtracts the same matrix from WEIGHT, a whole weight [out, in].
// TRANSPOSED: the file stores the weight as [in, out].
using TakeOutBeginning = std::function<void(std::span<float> weight,
                                            const storage::WeightChange& change, bool transposed)>;

// The source of a decoder's weights. Each weight is made once.
class WeightSource {
  public:
    // FORM is the form of the matrices that are used in products. If it is empty, they keep their
    // stored form. FOLDER and TEAM must outlive this object. Throws Error{kInput} naming the file.
    WeightSource(const storage::ModelFolder& folder, std::optional<kernels::MatrixForm> form,
                 kernels::ThreadTeam& team);

    // Applies the changes of ADAPTER, which must outlive this object, to all weights that are made
    // from now on. CHANGED: the folder's config after the adapter's changes.
    void adapt(storage::AdapterChanges& adapter, const storage::TransformerConfig& changed,
               TakeOutBeginning take_out);

    // From now on, uses NUMBERS, [out, in], as the weight NAME, and INPUTS as the rounding of its
    // layer's inputs. If NUMBERS is null, uses the folder's weight again.
    void replace(const std::string& name, std::shared_ptr<const std::vector<std::byte>> numbers,
                 storage::InputRounding inputs);
    // Returns how a layer's inputs are rounded. NAME: the layer's weight.
    [[nodiscard]] storage::InputRounding input_rounding(const std::string& name);
    // Returns the weights of the folder.
    [[nodiscard]] storage::FolderWeights& weights() { return weights_; }

    // Returns a matrix for use in products, in the form that the constructor was given.
    [[nodiscard]] OwnedMatrix matrix(const MatrixPart& part);
    // Returns a tensor as it is stored, for looking up rows.
    [[nodiscard]] OwnedMatrix table(const std::string& name, int64_t rows, int64_t columns);
    // Returns the range PART of a tensor's numbers, in stored order. SIZES: the tensor's
    // dimensions.
    [[nodiscard]] std::vector<float> vector(const std::string& name, std::vector<int64_t> sizes,
                                            Range part);
    // Returns the NUMEL numbers of a tensor with one dimension.
    [[nodiscard]] std::vector<float> vector(const std::string& name, int64_t numel) {
        return vector(name, {numel}, {0, numel});
    }
    // Returns the adapter's low-rank change of the layer whose weight is PART; nothing if the
    // adapter does not change this layer, or if the change was added to the matrix.
    [[nodiscard]] std::optional<LowRank> low_rank(const MatrixPart& part);
    // Adds the adapter's change to BIAS, which holds the range PART of the bias NAME. NUMEL: the
    // size of the whole bias. An empty BIAS counts as zeros.
    void add_to_bias(const std::string& name, int64_t numel, Range part, std::vector<float>& bias);

    // Throws Error{kInput} if a tensor of the folder or of the adapter was not used.
    void require_all_taken() const;

  private:
    [[nodiscard]] storage::FolderWeight take(const std::string& name, std::vector<int64_t> sizes);
    [[nodiscard]] const storage::WeightChange* change_of(const std::string& name);
    [[noreturn]] void refuse_form(const storage::WeightChange& change, const char* why) const;
    [[nodiscard]] OwnedMatrix fp32_matrix(const std::vector<float>& numbers, int64_t rows) const;
    // Returns the whole matrix of PART, [out, in], with CHANGE applied. A pair that is kept as
    // separate matrices is not applied.
    [[nodiscard]] std::vector<float> changed(const storage::SafetensorsEntry& entry,
                                             const MatrixPart& part,
                                             const storage::WeightChange& change) const;
    void add_pair(const storage::LowRankPair& pair, std::vector<float>& numbers) const;

    // Numbers that replace a weight of the folder, in the weight's type. Shared with the caller.
    struct Replaced {
        std::shared_ptr<const std::vector<std::byte>> numbers;
        storage::InputRounding inputs = storage::InputRounding::kNone;
    };

    storage::FolderWeights weights_;
    std::map<std::string, Replaced> replaced_;
    const storage::TransformerConfig& stored_;  // the folder's config
    storage::AdapterChanges* adapter_ = nullptr;
    storage::TransformerConfig changed_;
    TakeOutBeginning take_out_;
    std::optional<kernels::MatrixForm> form_;
    kernels::ThreadTeam& team_;
};

}  // namespace dslaunch::decoder
