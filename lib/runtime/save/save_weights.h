// The trained weights as files: model.safetensors with the module's own names, and model.pt, which
// stock PyTorch loads. Values come parameter by parameter and are written to their places in the
// file, so no rank needs memory for the whole model. One thread.
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

    // Receives the values of a parameter, [numel] fp32 in the memory order of its tensor. They need
    // not stay valid after the call.
    virtual void put(int parameter, std::span<const float> values) = 0;
    // Called after the last put(), when all parameters were received.
    virtual void finish() = 0;
};

// Writes both files into FOLDER, which is created if missing. Each file is written as a whole or
// not at all. A tied parameter is written under all its names, with the shape that it has under
// each name. Only model.pt has the buffers that are not part of the state_dict. Throws
// Error{kDisk}, naming path, cause and bytes.
class WeightWriter final : public WeightSink {
  public:
    // ELSEWHERE are the parameters of MODEL, by index, that put() will bring, in fp32. finish()
    // writes all others, and the buffers, from their tensors. MODEL must outlive the writer. Throws
    // Error{kInput} as require_room_for_model() does.
    WeightWriter(graph::Model& model, std::string folder, std::span<const int> elsewhere);

    void put(int parameter, std::span<const float> values) override;
    // Writes the parameters that put() has not written. REQUIRES: put() was called for each
    // parameter of ELSEWHERE. Afterwards, the tensors of ELSEWHERE are mapped from written files
    // and must not be written to.
    void finish() override;

  private:
    // The entries of a tensor in model.safetensors.
    struct Home {
        bool elsewhere = false;
        size_t entry = 0;  // entry of its first name
        size_t names = 0;  // number of names with its own shape; 0 if left out
        std::vector<const graph::ModelView*> views;  // views; their entries come next
        int64_t strided_offset = -1;  // offset in the strided file; -1 if not in this file
    };
    [[nodiscard]] std::vector<storage::SafetensorsEntry> entries();
    void write(const Home& home, const at::Tensor& tensor);

    graph::Model& model_;
    std::string folder_;
    std::vector<Home> homes_;         // one per parameter
    std::vector<Home> buffer_homes_;  // one per buffer
    std::optional<storage::SafetensorsWriter> weights_;
    // A temporary file for the parameters that are not row-major. It has them in the memory order
    // that model.pt keeps, and is never committed.
    std::optional<storage::AtomicFile> strided_;
    int64_t strided_bytes_ = 0;
};

// The folder of a run, and the size of its optimizer states.
struct OutputNeed {
    std::string folder;
    int64_t states_numel = 0;     // elements that have optimizer states
    int64_t states = 0;           // optimizer states per element, fp32
    bool writes_smaller = false;  // the folder also gets smaller weights
};

// Makes the folder, and checks before the training that it has room for the weights and one
// checkpoint. Throws Error{kInput} as require_room_for_model() does, and Error{kDisk}, naming the
// folder, the bytes needed and the free bytes, if there is no room. Headers, a few KiB per rank,
// are not counted. If others fill the disk meanwhile, the write fails.
void check_room_for_output(const graph::Model& model, const OutputNeed& need);

}  // namespace dslaunch::runtime
