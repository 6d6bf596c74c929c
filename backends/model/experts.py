"""Feed-forward blocks: dense, and routed experts with dispatch, combine, shared experts and latents."""

from __future__ import annotations

from backends.model.emitter import Emitter
from backends.model.shapes import Linear, mlp_shape
from backends.ops import Compute


class FeedForward(Emitter):
    """The feed-forward half of a layer."""

    def _activation(self, name: str, width: float, tokens: float, backward: bool = False) -> None:
        if width:
            self._elementwise(name, tokens * width, 5 if backward else 3, 4 if backward else 2)

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
        return self.element * tokens * shape.per_token * shape.expert_width

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
            whole = self.element * self._local_tokens * spread * mlp_shape(self.model, "moe").expert_width
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
        self._elementwise("router_topk", tokens * shape.experts, 4, 12, "routing")
        if latent := self._latent("latent_in"):
            self._linear(latent, tokens)
        routed = self._routed_tokens()
        self._elementwise("permute_tokens", routed * shape.expert_width, 2, 6, "routing")
        self._exchange(f"{prefix}dispatch", combine=False)
        self._expert_tp(f"{prefix}expert", "all_gather")
        self._experts("")
        self._expert_tp(f"{prefix}expert", "reduce_scatter")
        self._exchange(f"{prefix}combine", combine=True)
        self._elementwise("unpermute_tokens", routed * shape.expert_width, 2, 6, "routing")
        if latent := self._latent("latent_out"):
            self._linear(latent, tokens)
        if shared := self._shared():
            self._enter("shared_expert")
            self._dense_forward(shared)

    def _routed_tokens(self) -> float:
        """Copies of tokens one device hands to the router's permutation."""
        width = mlp_shape(self.model, "moe").expert_width
        return self._dispatch_bytes / self.element / width

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
        nbytes = self.element * (rows * (n + k) + touched * n * k)
        size = (rows / touched, n, k)
        batch = round(touched) or 1
        launches = 1 if self.fused else batch
        self.items.append(Compute(name, "grouped_gemm", 2 * rows * n * k, nbytes, size, launches, batch))

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
        self._elementwise("unpermute_tokens_backward", routed * shape.expert_width, 2, 6, "routing")
        self._exchange("combine_grad", combine=False)
        self._expert_tp("expert_grad", "all_gather")
        self._experts("_backward")
        width = shape.expert_ffn / self.sharding.expert_tp
        self._activation("expert_silu_mul_backward", width, self.batch.tokens * self._expert_share(), True)
        self._expert_tp("expert_grad", "reduce_scatter")
        self._exchange("dispatch_grad", combine=True)
        self._elementwise("permute_tokens_backward", routed * shape.expert_width, 2, 6, "routing")
        if latent := self._latent("latent_in"):
            self._linear_backward(latent, tokens)
        self._elementwise("router_topk_backward", tokens * shape.experts, 4, 12, "routing")
        self._linear_backward(shape.linears[0], tokens)
