// Data files that a test writes into a folder of its own, and the request of a two-argument model.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "runtime/data/data_source.h"
#include "storage/files/safetensors.h"

namespace dslaunch {

using namespace runtime;
using namespace storage;

class DataFolder {
  public:
    DataFolder() {
        std::string pattern = "/tmp/dsl_data_test.XXXXXX";
        if (::mkdtemp(pattern.data()) == nullptr) fail(ExitCode::kDisk, "no folder in /tmp");
        path_ = pattern;
    }
    DataFolder(const DataFolder&) = delete;
    DataFolder& operator=(const DataFolder&) = delete;
    ~DataFolder() {
        std::error_code ignored;  // a folder in /tmp that stays is not the test's concern
        std::filesystem::remove_all(path_, ignored);
    }

    [[nodiscard]] std::string operator/(const std::string& name) const {
        return path_ + "/" + name;
    }

    [[nodiscard]] std::string bytes(const std::string& name, const std::string& content) const {
        write_file_atomically(*this / name, content);
        return *this / name;
    }
    // Tokens 0, 1, …, count - 1 as uint16.
    [[nodiscard]] std::string counting_tokens(const std::string& name, int count) const {
        std::string content;
        for (int i = 0; i < count; ++i) {
            content.push_back(static_cast<char>(i & 0xff));
            content.push_back(static_cast<char>(i >> 8));
        }
        return bytes(name, content);
    }
    [[nodiscard]] std::string rows(const std::string& name,
                                   const std::vector<SafetensorsEntry>& columns) const {
        write_safetensors(*this / name, columns);
        return *this / name;
    }

  private:
    std::string path_;
};

// VALUES must outlive the column.
template <typename T>
SafetensorsEntry column(const std::string& name, DType dtype, std::vector<int64_t> shape,
                        const std::vector<T>& values) {
    return {name, dtype, std::move(shape), std::as_bytes(std::span(values))};
}

inline DataRequest request_for(const std::string& path, std::vector<std::string> arguments) {
    DataRequest request;
    request.data.train_path = path;
    request.argument_types.assign(arguments.size(), c10::TensorType::get());
    request.arguments = std::move(arguments);
    return request;
}

inline DataRequest token_request(const std::string& path, int64_t context) {
    DataRequest request = request_for(path, {"tokens", "targets"});
    request.data.context = context;
    return request;
}

template <typename T>
std::vector<T> values_of(const c10::IValue& value) {
    const at::Tensor& tensor = value.toTensor();
    const T* data = tensor.const_data_ptr<T>();
    return {data, data + tensor.numel()};
}

inline std::vector<int64_t> shape_of(const c10::IValue& value) {
    return value.toTensor().sizes().vec();
}

}  // namespace dslaunch
