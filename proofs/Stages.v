(* The stages of bound="auto" and other counts: python/dpgep/privacy/curator.py, `Stages`, and ClippedProducts' shares
   of people. What a person adds is a vector; each constant bounds the square of its change. *)

From Proofs Require Import Vectors.

(* constants: squares, in units of a person; of c columns *)
Definition histogram_replaced (c : R) : R := 2 * c.
Definition histogram_added (c : R) : R := 1 * c.
Definition sums_replaced (c : R) : R := 4 * c.
Definition sums_added (c : R) : R := 3 * c.
Definition row_replaced : R := 4.
Definition row_added : R := 1.
(* end *)

(* A histogram: a person is in one bin of each column, or in none where there is no value. *)
Definition bin (k : nat) : vector := fun i => if Nat.eqb i k then 1 else 0.
Definition counted (k : option nat) : vector := match k with Some b => bin b | None => fun _ => 0 end.

Lemma bin_nonneg k i : 0 <= counted k i.
Proof. destruct k; simpl; unfold bin; [destruct Nat.eqb|]; lra. Qed.

Lemma squared_bin d k : squared d (counted k) <= 1.
Proof.
  destruct k as [k|]; simpl; [|unfold squared, dot; rewrite (sum_ext d _ (fun _ => 0)), sum_zero; [lra | intros; ring]].
  assert (squared d (bin k) = if (k <? d)%nat then 1 else 0) as ->; [|destruct Nat.ltb; lra].
  unfold squared, dot, bin. induction d as [|d IH]; [reflexivity|]. simpl. rewrite IH.
  destruct (Nat.ltb_spec k d); destruct (Nat.ltb_spec k (S d)); destruct (Nat.eqb_spec d k); try lia; ring.
Qed.

Lemma dot_bins d k k' : 0 <= dot d (counted k) (counted k').
Proof. apply sum_nonneg. intros. apply Rmult_le_pos; apply bin_nonneg. Qed.

Section Histograms.
Variables (c d : nat) (b b' : nat -> option nat).

Theorem histogram_of_one_replaced :
  sum c (fun j => squared d (minus (counted (b j)) (counted (b' j)))) <= histogram_replaced (INR c).
Proof.
  unfold histogram_replaced. eapply Rle_trans; [apply (sum_le_times c _ 2) | lra]. intros j _. rewrite squared_minus.
  pose proof (squared_bin d (b j)). pose proof (squared_bin d (b' j)). pose proof (dot_bins d (b j) (b' j)). lra.
Qed.

Theorem histogram_of_one_added : sum c (fun j => squared d (counted (b j))) <= histogram_added (INR c).
Proof.
  unfold histogram_added. eapply Rle_trans; [apply (sum_le_times c _ 1) | lra]. intros j _. apply squared_bin.
Qed.
End Histograms.

(* Sums of places u in [-1, 1], of u^2 and of the values: of one column, with a value or without. *)
Definition placed (u : option R) : vector :=
  match u with Some u => fun i => match i with O => u | S O => u * u | _ => 1 end | None => fun _ => 0 end.
Definition in_interval (u : option R) := match u with Some u => -1 <= u <= 1 | None => True end.

Lemma place_added u : in_interval u -> squared 3 (placed u) <= 3.
Proof.
  destruct u as [u|]; unfold squared, dot; simpl; intros; [|lra].
  assert (u * u <= 1) by nra. nra.
Qed.

Lemma place_replaced u v : in_interval u -> in_interval v -> squared 3 (minus (placed u) (placed v)) <= 4.
Proof.
  assert (N : forall x y, squared 3 (minus x y) = squared 3 (minus y x)) by (intros; unfold squared, dot, minus; simpl; ring).
  assert (Z : forall u, in_interval u -> squared 3 (minus (placed u) (placed None)) <= 4).
  { intros w W. pose proof (place_added w W). replace (squared 3 _) with (squared 3 (placed w)); [lra|].
    unfold squared, dot, minus. simpl. ring. }
  destruct u as [u|]; [destruct v as [v|]|]; intros U V; [|now apply Z|rewrite N; now apply Z].
  unfold squared, dot, minus. simpl in *.
  (* D^2 (1 + e^2), D = |u - v| and e = |u + v| at most 2 - D *)
  replace (_ + _) with ((u - v) * (u - v) * (1 + (u + v) * (u + v))) by ring.
  assert (H : forall p q, -1 <= p <= 1 -> -1 <= q <= 1 -> q <= p -> (p - q) * (p - q) * (1 + (p + q) * (p + q)) <= 4).
  { intros p q P Q L. set (D := p - q).
    assert ((p + q) * (p + q) <= (2 - D) * (2 - D)) by (unfold D; nra).
    assert (0 <= D <= 2) by (unfold D; lra).
    apply Rle_trans with (D * D * (1 + (2 - D) * (2 - D))); [apply Rmult_le_compat_l; nra|].
    assert (0 <= (2 - D) * (D * ((D - 1) * (D - 1)) + 2)); [|lra].
    assert (0 <= D * ((D - 1) * (D - 1))) by (apply Rmult_le_pos; [lra | apply Rle_0_sqr]). apply Rmult_le_pos; lra. }
  destruct (Rle_lt_dec v u); [now apply H|].
  replace (_ * _) with ((v - u) * (v - u) * (1 + (v + u) * (v + u))) by ring. apply H; lra.
Qed.

Section Columns.
Variables (c : nat) (u v : nat -> option R).
Hypotheses (U : forall j, in_interval (u j)) (V : forall j, in_interval (v j)).

Theorem sums_of_one_replaced : sum c (fun j => squared 3 (minus (placed (u j)) (placed (v j)))) <= sums_replaced (INR c).
Proof.
  unfold sums_replaced. eapply Rle_trans; [apply (sum_le_times c _ 4) | lra]. intros. now apply place_replaced.
Qed.

Theorem sums_of_one_added : sum c (fun j => squared 3 (placed (u j))) <= sums_added (INR c).
Proof.
  unfold sums_added. eapply Rle_trans; [apply (sum_le_times c _ 3) | lra]. intros. now apply place_added.
Qed.
End Columns.

(* A sum of rows in the unit ball. *)
Theorem row_of_one_replaced d z z' : squared d z <= 1 -> squared d z' <= 1 -> squared d (minus z z') <= row_replaced.
Proof.
  intros Z Z'. rewrite squared_minus. unfold row_replaced.
  assert (- dot d z z' <= 1 * 1); [|lra].
  rewrite <- dot_opposite. apply dot_le; try lra. unfold squared in *. rewrite dot_opposite, dot_sym, dot_opposite. lra.
Qed.

Theorem row_of_one_added d z : squared d z <= 1 -> squared d z <= row_added.
Proof. unfold row_added. lra. Qed.

(* Attained: by bins 0 and 1; by u = 1 and v = -1, or u = 1; by rows (1) and (-1). *)
Theorem histogram_is_attained :
  squared 2 (minus (counted (Some 0%nat)) (counted (Some 1%nat))) = histogram_replaced 1 /\
  squared 2 (counted (Some 0%nat)) = histogram_added 1.
Proof. unfold squared, dot, minus, counted, bin, histogram_replaced, histogram_added. simpl. lra. Qed.

Theorem sums_are_attained :
  squared 3 (minus (placed (Some 1)) (placed (Some (-1)))) = sums_replaced 1 /\ squared 3 (placed (Some 1)) = sums_added 1.
Proof. unfold squared, dot, minus, placed, sums_replaced, sums_added. simpl. lra. Qed.

Theorem row_is_attained :
  squared 1 (minus (fun _ => 1) (fun _ => -1)) = row_replaced /\ squared 1 (fun _ => 1) = row_added.
Proof. unfold squared, dot, minus, row_replaced, row_added. simpl. lra. Qed.
