// Data files that a test writes into a folder of its own, and the data request of a model.
#pragma once

#include <string>
#include <vector>

#include "runtime/data/data_source.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "support/write_safetensors.h"

namespace dslaunch {

using namespace runtime;
using namespace storage;

class DataFolder {
  public:
    [[nodiscard]] std::string operator/(const std::string& name) const {
        return folder_.path() + "/" + name;
    }

    [[nodiscard]] std::string bytes(const std::string& name, const std::string& content) const {
        test::write_file(*this / name, content);
        return *this / name;
    }
    // Writes a file with tokens 0, 1, …, count - 1 as uint16. Returns its path.
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
        test::write_safetensors(*this / name, columns);
        return *this / name;
    }

  private:
    test::TemporaryFolder folder_;
};

// Returns a column of VALUES, which must outlive it.
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
