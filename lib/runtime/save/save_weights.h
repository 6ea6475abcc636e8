// The trained weights as files: model.safetensors with the module's own names, and model.pt, which
// stock PyTorch loads. Values come parameter by parameter and go to their places in the file, so
// that no rank needs memory for the whole model. One thread.
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

// Writes both into FOLDER, made if missing, each whole or not at all. A tied parameter is written
// under all its names. What is thrown: Error{kDisk} naming path, cause and bytes.
class WeightWriter {
  public:
    // ELSEWHERE: parameters of MODEL, by index, that put() will bring, fp32. All others and the
    // buffers are written as their tensors hold them in finish(). MODEL must outlive the writer.
    WeightWriter(graph::Model& model, std::string folder, std::span<const int> elsewhere);

    // The values of a parameter, [numel] fp32 in the order of its tensor's memory; written before
    // it returns.
    void put(int parameter, std::span<const float> values);
    // REQUIRES: put() has brought all it had to. The tensors of these parameters read the written
    // file from now on, and are of no use but to be read.
    void finish();

  private:
    struct Home {
        bool elsewhere = false;
        size_t entry = 0;             // in model.safetensors, of its first name
        int64_t strided_offset = -1;  // in the strided file, -1: it is not there
    };
    [[nodiscard]] std::vector<storage::SafetensorsEntry> entries();
    void write(size_t entry, size_t names, std::span<const std::byte> bytes);
    void write(size_t entry, size_t names, const at::Tensor& tensor);

    graph::Model& model_;
    std::string folder_;
    std::vector<Home> homes_;  // by parameter
    std::optional<storage::SafetensorsWriter> weights_;
    // Parameters whose memory is not in the order of their rows, as model.pt keeps it; never
    // committed.
    std::optional<storage::AtomicFile> strided_;
    int64_t strided_bytes_ = 0;
};

struct OutputNeed {
    std::string folder;
    int64_t states_numel = 0;  // elements that have optimizer states
    int64_t states = 0;        // of each, fp32
};

// Makes the folder and throws Error{kDisk} naming it, need and free bytes when the weights and one
// checkpoint will not fit there together: said before training, not after it. Headers, a few KiB a
// rank, are not counted. What else fills the disk meanwhile is found at the write.
void check_room_for_output(const graph::Model& model, const OutputNeed& need);

}  // namespace dslaunch::runtime
