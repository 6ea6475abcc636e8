// The weights that a rank's decoder is made of: parts of the tensors of a Hugging Face folder, as
// they lie in its files or rounded to fewer bits, with the tensors that an adapter puts in their
// place. Data path: storage/huggingface/folder_weights.h -> [here] -> decoder_weights.h. One thread
// at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/range.h"
#include "infer/model/matrix_memory.h"
#include "kernels/thread_team.h"
#include "storage/adapter/adapter_config.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/folder_weights.h"

namespace dslaunch::infer {

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

class WeightSource {
  public:
    // ADAPTER: the folder of one, or empty. FORM: that of products' weights; none: as they are
    // stored. FOLDER and TEAM must outlive this. Throws Error{kInput} naming the file.
    WeightSource(const storage::ModelFolder& folder, const std::string& adapter,
                 std::optional<kernels::MatrixForm> form, kernels::ThreadTeam& team);

    // A matrix of products, in the form that was asked for.
    [[nodiscard]] OwnedMatrix matrix(const MatrixPart& part);
    // The same tensor as it is stored, to look up rows.
    [[nodiscard]] OwnedMatrix table(const std::string& name, int64_t rows, int64_t columns);
    // PART of the numbers of a tensor of SIZES, in its order.
    [[nodiscard]] std::vector<float> vector(const std::string& name, std::vector<int64_t> sizes,
                                            Range part);
    [[nodiscard]] std::vector<float> vector(const std::string& name, int64_t numel) {
        return vector(name, {numel}, {0, numel});
    }
    // The adapter's change of the layer whose weight is PART; nothing: it has none.
    [[nodiscard]] std::optional<LowRank> low_rank(const MatrixPart& part);

    // Throws Error{kInput} for a tensor of the folder or of the adapter that nothing took.
    void require_all_taken() const;

  private:
    struct AdapterTensor {
        const storage::SafetensorsEntry* entry = nullptr;
        bool taken = false;
    };
    [[nodiscard]] storage::FolderWeight take(const std::string& name, std::vector<int64_t> sizes);
    [[nodiscard]] AdapterTensor* adapter_tensor(const std::string& name);
    [[nodiscard]] OwnedMatrix fp32_part(const storage::SafetensorsEntry& entry, Range rows,
                                        Range columns, float factor) const;

    storage::FolderWeights weights_;
    std::string adapter_path_;
    std::optional<storage::SafetensorsFile> adapter_;
    storage::AdapterConfig adapter_config_;
    std::map<std::string, AdapterTensor> adapter_tensors_;  // by the name in the model
    std::optional<kernels::MatrixForm> form_;
    kernels::ThreadTeam& team_;
};

// Numbers of a tensor as fp32. REQUIRES: DTYPE is kF32, kBF16 or kF16.
void to_fp32(const std::byte* from, DType dtype, int64_t numel, float* to);

}  // namespace dslaunch::infer
