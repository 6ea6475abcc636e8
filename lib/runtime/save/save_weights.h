// The trained weights as files: model.safetensors with the module's own names, and model.pt, which
// stock PyTorch loads. Values come parameter by parameter and go to their places in the file, so no
// rank needs memory for the whole model. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/archive/model.h"
#include "storage/files/atomic_file.h"
#include "storage/files/safetensors.h"

namespace dslaunch::runtime {

// The receiver of final weights.
class WeightSink {
  public:
    virtual ~WeightSink() = default;

    // Takes the values of a parameter, [numel] fp32 in the order of its tensor's memory, before it
    // returns.
    virtual void put(int parameter, std::span<const float> values) = 0;
    virtual void finish() = 0;
};

// Writes both files into FOLDER, made if missing, each whole or not at all. Writes a tied parameter
// under all its names, in its shape under each; only model.pt has buffers that a state_dict leaves
// out. Throws Error{kDisk} naming path, cause and bytes.
class WeightWriter final : public WeightSink {
  public:
    // ELSEWHERE are the parameters of MODEL, by index, that put() will bring, fp32. All others and
    // the buffers are written as their tensors hold them in finish(). MODEL must outlive the
    // writer. Throws Error{kInput} as require_room_for_model() does.
    WeightWriter(graph::Model& model, std::string folder, std::span<const int> elsewhere);

    void put(int parameter, std::span<const float> values) override;
    // Writes the rest. REQUIRES: put() has brought all parameters of ELSEWHERE. Their tensors read
    // the written file from now on, and may only be read.
    void finish() override;

  private:
    // A tensor's entries in model.safetensors.
    struct Home {
        bool elsewhere = false;
        size_t entry = 0;                            // its first name
        size_t names = 0;                            // with its own shape; 0: it is left out
        std::vector<const graph::ModelView*> views;  // the entries after these
        int64_t strided_offset = -1;  // offset in the strided file; -1: it is not there
    };
    [[nodiscard]] std::vector<storage::SafetensorsEntry> entries();
    void write(const Home& home, const at::Tensor& tensor);

    graph::Model& model_;
    std::string folder_;
    std::vector<Home> homes_;         // one per parameter
    std::vector<Home> buffer_homes_;  // one per buffer
    std::optional<storage::SafetensorsWriter> weights_;
    // The file of parameters whose memory is not in the order of their rows, as model.pt keeps it.
    // It is never committed.
    std::optional<storage::AtomicFile> strided_;
    int64_t strided_bytes_ = 0;
};

struct OutputNeed {
    std::string folder;
    int64_t states_numel = 0;  // elements that have optimizer states
    int64_t states = 0;        // optimizer states per element, fp32
};

// Makes the folder. Throws Error{kInput} as require_room_for_model() does, before anything is
// trained, and Error{kDisk} naming it, need and free bytes if the weights and one
// checkpoint will not fit there together, before training instead of after it. Headers, a few KiB a
// rank, are not counted. A disk that others fill meanwhile is noticed at the write.
void check_room_for_output(const graph::Model& model, const OutputNeed& need);

}  // namespace dslaunch::runtime
