"""The operations of one layer, of the embedding and of the head: FLOPs and bytes from the shapes, forward and backward.

FLOPs of a matrix product: 2·m·n·k; its two gradients cost the same each (Kaplan et al. 2020, the 6·N rule). Attention:
2·q·c·(qk + v) per head over the average context c; its backward costs 2.5 forwards because the scores are computed
again (Dao 2023, FlashAttention-2).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from backends.model.shapes import LayerKind, Linear, Sharding, attention_shape, mlp_shape
from backends.ops import Communication, Compute, Item, OpClass
from runs.workload import ModelArchitecture

ELEMENT = 2.0
"""Bytes of a bf16 element, the type activations have."""


@dataclass(frozen=True)
class Batch:
    """What one pass of one device works on.

    `tokens`: tokens of the micro-batch this device holds between attention blocks (its share of context parallel);
    `context`: average number of positions a query sees; `cached`: key/value positions read from the cache (decode),
    summed over sequences; `sampled`: tokens whose logits are wanted.
    """

    tokens: float
    context: float
    cached: float = 0.0
    sampled: float = 0.0


@dataclass(frozen=True)
class LayerBuilder:
    """Writes the items of a layer in the order a rank runs them.

    `fused`: elementwise chains run as one kernel (a compiler or hand-written fusions), else one kernel a step.
    `dispatch`: how tokens reach experts, by exchange (`all_to_all`) or by gathering them all (`all_gather`).
    """

    model: ModelArchitecture
    sharding: Sharding
    batch: Batch
    fused: bool = False
    dispatch: str = "all_to_all"
    own_axis: bool = False
    items: list[Item] = field(default_factory=list)

    def forward(self, kind: LayerKind) -> tuple[Item, ...]:
        """A whole layer, forward."""
        self.items.clear()
        self._attention_forward()
        self._mlp_forward(kind)
        return tuple(self.items)

    def backward(self, kind: LayerKind) -> tuple[Item, ...]:
        """A whole layer, backward; a collective stands where its input is ready."""
        self.items.clear()
        self._mlp_backward(kind)
        self._attention_backward()
        return tuple(self.items)

    def cheap_recompute(self, kind: LayerKind) -> tuple[Item, ...]:
        """What selective recomputation repeats before a backward: the attention core, norms and activations."""
        self.items.clear()
        self._norm("recompute_input_norm")
        self._attention_core("recompute_attention")
        self._norm("recompute_post_norm")
        self._activation("recompute_act", self._mlp_width(kind), self.batch.tokens)
        return tuple(self.items)

    # --- pieces -----------------------------------------------------------------------------------------------------

    @property
    def _local_tokens(self) -> float:
        return self.batch.tokens / self.sharding.sequence_split

    def _elementwise(self, name: str, elements: float, streams: int, eager: int, kind: OpClass = "elementwise") -> None:
        """`streams`: reads plus writes per element when fused; `eager`: kernels otherwise, each reading and writing."""
        walks = streams if self.fused else max(streams, 2 * eager)
        launches = 1 if self.fused else eager
        self.items.append(Compute(name, kind, 4 * elements, walks * ELEMENT * elements, launches=launches))

    def _norm(self, name: str, streams: int = 2, eager: int = 4) -> None:
        self._elementwise(name, self._local_tokens * self.model.hidden_size, streams, eager, "norm")

    def _linear(self, linear: Linear, tokens: float, prefix: str = "") -> None:
        inputs, outputs = linear.local(self.sharding.tp)
        self._gemm(prefix + linear.name, tokens, outputs, inputs)

    def _gemm(self, name: str, m: float, n: float, k: float) -> None:
        nbytes = ELEMENT * (m * n + n * k + m * k)
        self.items.append(Compute(name, "gemm", 2 * m * n * k, nbytes, (m, n, k)))

    def _linear_backward(self, linear: Linear, tokens: float) -> None:
        inputs, outputs = linear.local(self.sharding.tp)
        self._gemm(f"{linear.name}_dgrad", tokens, inputs, outputs)
        self._gemm(f"{linear.name}_wgrad", outputs, inputs, tokens)

    def _comm(self, name: str, kind: str, axis: str, nbytes: float) -> None:
        self.items.append(Communication(name, kind, axis, nbytes))  # type: ignore[arg-type]

    def _enter(self, name: str) -> None:
        """Into a tensor-parallel region: forward gathers a sequence-parallel input, else nothing moves."""
        if self.sharding.sequence_parallel:
            self._comm(f"{name}_all_gather", "all_gather", "tp", self._whole)

    def _leave(self, name: str) -> None:
        """Out of a tensor-parallel region: partial sums meet."""
        if self.sharding.tp > 1:
            kind = "reduce_scatter" if self.sharding.sequence_parallel else "all_reduce"
            self._comm(f"{name}_{kind}", kind, "tp", self._whole)

    @property
    def _whole(self) -> float:
        return ELEMENT * self.batch.tokens * self.model.hidden_size

    # --- attention --------------------------------------------------------------------------------------------------

    def _attention_forward(self) -> None:
        shape, tokens = attention_shape(self.model), self.batch.tokens
        self._norm("input_norm")
        self._enter("attention")
        for linear in shape.linears[:-1]:
            self._linear(linear, tokens)
        heads = shape.heads / self.sharding.tp
        self._elementwise("rope", tokens * heads * shape.qk_dim, 2, 4)
        self._ring("cp_exchange_kv", 1.0)
        self._attention_core("flash_attention")
        self._linear(shape.linears[-1], tokens)
        self._leave("attention")
        self._elementwise("residual_add", self._local_tokens * self.model.hidden_size, 3, 1)

    def _ring(self, name: str, factor: float) -> None:
        """Context parallelism: every rank gathers the keys and values of the whole sequence."""
        if self.sharding.cp > 1:
            width = self._cache_width()
            self._comm(name, "all_gather", "cp", factor * ELEMENT * self.batch.tokens * self.sharding.cp * width)

    def _cache_width(self) -> float:
        shape = attention_shape(self.model)
        return shape.cache_width / min(self.sharding.tp, shape.cache_heads)

    def _core_flops(self) -> float:
        shape = attention_shape(self.model)
        heads = shape.heads / self.sharding.tp
        latent = self.batch.cached and shape.latent_width
        width = 2 * shape.latent_width if latent else shape.qk_dim + shape.v_dim
        return 2 * heads * width * self.batch.tokens * self.batch.context

    def _core_bytes(self) -> float:
        shape = attention_shape(self.model)
        heads = shape.heads / self.sharding.tp
        own = self.batch.tokens * heads * (shape.qk_dim + shape.v_dim)
        read = (self.batch.cached or self.batch.tokens * self.sharding.cp) * self._cache_width()
        return ELEMENT * (own + read)

    def _attention_core(self, name: str) -> None:
        rows = self.batch.tokens * attention_shape(self.model).heads / self.sharding.tp
        shape = (rows, self.batch.context, float(attention_shape(self.model).qk_dim))
        self.items.append(Compute(name, "attention", self._core_flops(), self._core_bytes(), shape))

    def _attention_backward(self) -> None:
        shape, tokens = attention_shape(self.model), self.batch.tokens
        self._enter("attention_grad")
        self._linear_backward(shape.linears[-1], tokens)
        rows = tokens * shape.heads / self.sharding.tp
        size = (rows, self.batch.context, float(shape.qk_dim))
        self.items.append(
            Compute("flash_attention_backward", "attention_backward", 2.5 * self._core_flops(),
                    2.5 * self._core_bytes(), size, launches=3)
        )  # fmt: skip
        if self.sharding.cp > 1:
            self._comm("cp_reduce_kv_grad", "reduce_scatter", "cp",
                       ELEMENT * tokens * self.sharding.cp * self._cache_width())  # fmt: skip
        self._elementwise("rope_backward", rows * shape.qk_dim, 2, 4)
        for linear in reversed(shape.linears[:-1]):
            self._linear_backward(linear, tokens)
        self._leave("attention_grad")
        self._norm("input_norm_backward", 4, 6)
        self._elementwise("residual_add_backward", self._local_tokens * self.model.hidden_size, 3, 1)

    # --- feed-forward -----------------------------------------------------------------------------------------------

    def _mlp_width(self, kind: LayerKind) -> float:
        shape = mlp_shape(self.model, kind)
        shared = sum(linear.inputs for linear in shape.linears if linear.name.endswith("down_proj")) / self.sharding.tp
        routed = self._expert_share() * shape.expert_ffn / self.sharding.expert_tp if shape.experts else 0.0
        return shared + routed

    def _activation(self, name: str, width: float, tokens: float, backward: bool = False) -> None:
        if width:
            self._elementwise(name, tokens * width, 5 if backward else 3, 4 if backward else 2)

    def _mlp_forward(self, kind: LayerKind) -> None:
        shape = mlp_shape(self.model, kind)
        self._norm("post_attention_norm")
        if shape.experts:
            self._moe_forward()
        else:
            self._enter("mlp")
            self._dense_forward(shape.linears)
        self._leave("mlp")
        self._elementwise("residual_add_mlp", self._local_tokens * self.model.hidden_size, 3, 1)

    def _dense_forward(self, linears: tuple[Linear, ...]) -> None:
        for linear in linears:
            self._linear(linear, self.batch.tokens)
            if linear.name.endswith("gate_up_proj"):
                self._activation("silu_mul", linear.outputs / 2 / self.sharding.tp, self.batch.tokens)

    def _expert_share(self) -> float:
        """Routed tokens one device computes per token it holds, with even routing.

        Exchanged tokens balance out: what leaves is what comes in, so the share is `per_token`, except that a
        device group which holds every token of its tensor-parallel peers computes only its experts' part.
        """
        k = mlp_shape(self.model, "moe").per_token
        if self.sharding.expert_tp < self.sharding.tp:
            return k / self.sharding.tp
        return k / self.sharding.ep if self.own_axis else float(k)

    @property
    def _dispatch_bytes(self) -> float:
        shape, tokens = mlp_shape(self.model, "moe"), self._local_tokens
        if self.own_axis:
            tokens /= self.sharding.ep
        elif self.sharding.expert_tp < self.sharding.tp and not self.sharding.sequence_parallel:
            tokens /= self.sharding.tp
        return ELEMENT * tokens * shape.per_token * shape.expert_width

    @property
    def _exchanges(self) -> bool:
        """Whether tokens have to move at all: not where the expert group only spans ranks that hold the same tokens."""
        whole = self.sharding.expert_tp < self.sharding.tp and not self.sharding.sequence_parallel
        return self.sharding.ep > 1 and not (whole and self.sharding.ep <= self.sharding.tp)

    def _exchange(self, name: str, combine: bool) -> None:
        if not self._exchanges:
            return
        if self.dispatch == "all_gather":
            spread = self.sharding.ep / (self.sharding.tp if self.sharding.expert_tp < self.sharding.tp else 1)
            whole = ELEMENT * self._local_tokens * spread * mlp_shape(self.model, "moe").expert_width
            kind = "reduce_scatter" if combine else "all_gather"
            self._comm(f"{name}_{kind}", kind, "ep", whole)
        else:
            self._comm(f"{name}_all_to_all", "all_to_all", "ep", self._dispatch_bytes)

    def _expert_tp(self, name: str, kind: str) -> None:
        """Experts cut by tensor parallelism see the tokens of all their ranks when the sequence is split."""
        if self.sharding.sequence_parallel and self.sharding.expert_tp > 1:
            self._comm(f"{name}_{kind}", kind, "tp", self._dispatch_bytes * self.sharding.tp)

    def _shared(self) -> tuple[Linear, ...]:
        return tuple(x for x in mlp_shape(self.model, "moe").linears if x.name.startswith("shared_"))

    def _latent(self, name: str) -> Linear | None:
        found = [x for x in mlp_shape(self.model, "moe").linears if x.name == name]
        return found[0] if found else None

    def _moe_forward(self, prefix: str = "") -> None:
        shape, tokens = mlp_shape(self.model, "moe"), self._local_tokens
        self._linear(shape.linears[0], tokens)
        self._elementwise("router_topk", tokens * shape.experts, 4, 6, "routing")
        if latent := self._latent("latent_in"):
            self._linear(latent, tokens)
        routed = self._routed_tokens()
        self._elementwise("permute_tokens", routed * shape.expert_width, 2, 3, "routing")
        self._exchange(f"{prefix}dispatch", combine=False)
        self._expert_tp(f"{prefix}expert", "all_gather")
        self._experts("")
        self._expert_tp(f"{prefix}expert", "reduce_scatter")
        self._exchange(f"{prefix}combine", combine=True)
        self._elementwise("unpermute_tokens", routed * shape.expert_width, 2, 3, "routing")
        if latent := self._latent("latent_out"):
            self._linear(latent, tokens)
        if shared := self._shared():
            self._enter("shared_expert")
            self._dense_forward(shared)

    def _routed_tokens(self) -> float:
        """Copies of tokens one device hands to the router's permutation."""
        width = mlp_shape(self.model, "moe").expert_width
        return self._dispatch_bytes / ELEMENT / width

    def _experts(self, suffix: str) -> None:
        shape = mlp_shape(self.model, "moe")
        rows = self.batch.tokens * self._expert_share()
        for linear in shape.expert:
            inputs, outputs = linear.local(self.sharding.expert_tp)
            if suffix:
                self._grouped(f"{linear.name}_dgrad", rows, inputs, outputs)
                self._grouped(f"{linear.name}_wgrad", rows, inputs, outputs)
            else:
                self._grouped(linear.name, rows, outputs, inputs)
                if linear.name.endswith("gate_up_proj"):
                    self._activation("expert_silu_mul", outputs / 2, rows)

    def _grouped(self, name: str, rows: float, n: float, k: float) -> None:
        shape = mlp_shape(self.model, "moe")
        local = shape.experts / self.sharding.ep
        touched = local * (1.0 - (1.0 - 1.0 / local) ** max(rows, 1.0)) if local > 1 else 1.0
        nbytes = ELEMENT * (rows * (n + k) + touched * n * k)
        size = (rows / touched, n, k)
        self.items.append(Compute(name, "grouped_gemm", 2 * rows * n * k, nbytes, size, batch=round(touched) or 1))

    def _mlp_backward(self, kind: LayerKind) -> None:
        shape = mlp_shape(self.model, kind)
        if shape.experts:
            self._moe_backward()
        else:
            self._enter("mlp_grad")
            self._dense_backward(shape.linears)
        self._leave("mlp_grad")
        self._norm("post_attention_norm_backward", 4, 6)
        self._elementwise("residual_add_mlp_backward", self._local_tokens * self.model.hidden_size, 3, 1)

    def _dense_backward(self, linears: tuple[Linear, ...]) -> None:
        for linear in reversed(linears):
            self._linear_backward(linear, self.batch.tokens)
            if linear.name.endswith("down_proj"):
                self._activation("silu_mul_backward", linear.local(self.sharding.tp)[0], self.batch.tokens, True)

    def _moe_backward(self) -> None:
        shape, tokens = mlp_shape(self.model, "moe"), self._local_tokens
        routed = self._routed_tokens()
        if shared := self._shared():
            self._enter("shared_expert_grad")
            self._dense_backward(shared)
        if latent := self._latent("latent_out"):
            self._linear_backward(latent, tokens)
        self._elementwise("unpermute_tokens_backward", routed * shape.expert_width, 2, 3, "routing")
        self._exchange("combine_grad", combine=False)
        self._expert_tp("expert_grad", "all_gather")
        self._experts("_backward")
        width = shape.expert_ffn / self.sharding.expert_tp
        self._activation("expert_silu_mul_backward", width, self.batch.tokens * self._expert_share(), True)
        self._expert_tp("expert_grad", "reduce_scatter")
        self._exchange("dispatch_grad", combine=True)
        self._elementwise("permute_tokens_backward", routed * shape.expert_width, 2, 3, "routing")
        if latent := self._latent("latent_in"):
            self._linear_backward(latent, tokens)
        self._elementwise("router_topk_backward", tokens * shape.experts, 4, 6, "routing")
        self._linear_backward(shape.linears[0], tokens)

    # --- first and last stage ---------------------------------------------------------------------------------------

    def embedding(self) -> tuple[Item, ...]:
        """Look the tokens up; the rows of the table are split over tensor-parallel ranks."""
        self.items.clear()
        self._elementwise("embedding", self.batch.tokens * self.model.hidden_size, 2, 3, "embedding")
        self._leave("embedding")
        return tuple(self.items)

    def embedding_backward(self) -> tuple[Item, ...]:
        """Scatter-add the gradients into the table."""
        self.items.clear()
        self._enter("embedding_grad")
        self._elementwise("embedding_backward", self.batch.tokens * self.model.hidden_size, 3, 3, "embedding")
        return tuple(self.items)

    def head(self, loss: bool) -> tuple[Item, ...]:
        """Final norm and logits, then the loss (training) or the gathering of logits and sampling (inference)."""
        self.items.clear()
        tokens = self.batch.tokens if loss else self.batch.sampled
        self._norm("final_norm")
        self._enter("head")
        columns = self.model.vocab_size / self.sharding.tp
        self._gemm("lm_head", tokens, columns, self.model.hidden_size)
        if loss:
            self._elementwise("cross_entropy", tokens * columns, 6, 5, "loss")
            if self.sharding.tp > 1:
                self._comm("cross_entropy_all_reduce", "all_reduce", "tp", 4 * 3 * tokens)
        else:
            if self.sharding.tp > 1:
                self._comm("logits_all_gather", "all_gather", "tp", ELEMENT * tokens * self.model.vocab_size)
            self._elementwise("sample", tokens * self.model.vocab_size, 3, 4, "loss")
        return tuple(self.items)

    def head_backward(self) -> tuple[Item, ...]:
        """Gradient of the loss, of the head and of the final norm."""
        self.items.clear()
        tokens, columns = self.batch.tokens, self.model.vocab_size / self.sharding.tp
        self._elementwise("cross_entropy_backward", tokens * columns, 4, 3, "loss")
        self._gemm("lm_head_dgrad", tokens, self.model.hidden_size, columns)
        self._gemm("lm_head_wgrad", columns, self.model.hidden_size, tokens)
        self._leave("head_grad")
        self._norm("final_norm_backward", 4, 6)
        return tuple(self.items)
