// GPUs of which torch knows all that the draw of a seed asks for: tensors, streams and a generator.
// They have no memory and no kernel.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <utility>

#include "csrc/ops/check.cpp"
#include "csrc/ops/random.cpp"

namespace {

bool is_capturing = false, operator_drew = false;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static inline c10::Device current{at::kCUDA, 0};

  c10::DeviceType type() const override { return at::kCUDA; }
  c10::Device exchangeDevice(c10::Device d) const override { return std::exchange(current, d); }
  c10::Device getDevice() const override { return current; }
  void setDevice(c10::Device d) const override { current = d; }
  void uncheckedSetDevice(c10::Device d) const noexcept override { current = d; }
  c10::Stream getStream(c10::Device d) const override {
    return c10::Stream(c10::Stream::DEFAULT, d);
  }
  c10::Stream exchangeStream(c10::Stream s) const override { return s; }
  c10::DeviceIndex deviceCount() const noexcept override { return 8; }
  bool isStreamCapturing(const c10::Stream&) const { return is_capturing; }  // from torch 2.13 on
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

// As a CUDAGeneratorImpl, which is asked on its device and in no capture.
struct Generator final : c10::GeneratorImpl {
  struct State {
    uint64_t seed, offset;
  };

  Generator(c10::Device device, std::shared_ptr<State> state)
      : GeneratorImpl(device, c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        state_(std::move(state)) {}

  void set_current_seed(uint64_t seed) override { *state_ = {seed, 0}; }
  void set_offset(uint64_t offset) override {
    check();
    state_->offset = offset;
    resets_rnn = true;
  }
  uint64_t get_offset() const override { return check(), state_->offset; }
  uint64_t current_seed() const override { return check(), state_->seed; }
  uint64_t seed() override { return 0; }
  void set_state(const c10::TensorImpl&) override {}
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return {}; }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<Generator>(device(), state_);
  }

  bool resets_rnn = false;

 private:
  Generator* clone_impl() const override { return new Generator(device(), state_); }
  void check() const { TORCH_CHECK(!is_capturing && Guard::current == device()); }

  std::shared_ptr<State> state_;
};

at::Tensor tensor(c10::Device device, at::ScalarType dtype) {
  return at::detail::make_tensor<c10::TensorImpl>(c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                                  c10::scalarTypeToTypeMeta(dtype), device);
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format",
         [](c10::SymIntArrayRef, std::optional<at::ScalarType> dtype, std::optional<c10::Layout>,
            std::optional<c10::Device> device, std::optional<bool>,
            std::optional<c10::MemoryFormat>) { return tensor(*device, *dtype); });
}

TORCH_LIBRARY_IMPL(gelu_kernels, CUDA, m) {
  m.impl("random_seed", [](const at::Tensor& empty, const std::optional<at::Generator>&) {
    operator_drew = true;
    return empty;
  });
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void fake_gpu_capture(bool on) { is_capturing = on; }

struct Drawn {
  int64_t seed;
  uint64_t offset;  // of the generator, afterwards
  bool by_operator, resets_rnn;
};

// By a call with an x on a GPU, with a generator of this state.
EXPORT Drawn fake_gpu_draw(int index, bool is_subclass, bool wants_gradient, uint64_t seed,
                           uint64_t offset) {
  const c10::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  const auto state = std::make_shared<Generator::State>(Generator::State{seed, offset});
  const auto generator = c10::make_intrusive<Generator>(device, state);
  at::Tensor x = tensor(device, at::kFloat);
  if (wants_gradient) x.requires_grad_();
  if (is_subclass) x.unsafeGetTensorImpl()->set_python_dispatch(true);
  operator_drew = false;
  const at::Tensor drawn = gelu_kernels::draw_seed("draw", x, at::Generator(generator));
  const int64_t value = operator_drew ? 0 : *drawn.const_data_ptr<int64_t>();
  return {value, state->offset, operator_drew, generator->resets_rnn};
}
